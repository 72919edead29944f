"""The project from Python, as its documentation prints it, and where a notebook differs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import longmem
from benchmarks.store import Store
from core.errors import UsageError
from core.rollout import run_async
from core.tokens import Tokenizer
from tests.conftest import ROOT
from tests.reader import ReaderServer, reader


@pytest.fixture
def server(tokenizer: Tokenizer) -> Iterator[ReaderServer]:
    with reader(tokenizer) as server:
        server.delay_s = 0.0
        yield server


@pytest.fixture
def printed(
    server: ReaderServer, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The lines of the module's documentation, with a model, a place and lengths that are here."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    monkeypatch.chdir(tmp_path)
    assert longmem.__doc__
    block = longmem.__doc__.split("\n\n")[1:3]
    code = textwrap.dedent("\n\n".join(block))
    for shown, here in (
        ("my-model", "reader"),
        ("[8192, 32768]", "[8192, 9000]"),
        ("samples=8", "samples=2"),
        ("http://127.0.0.1:8000/v1", server.url),
        ("path/to/model", str(tmp_path)),
    ):
        assert shown in code
        code = code.replace(shown, here)
    return code


def last_value(code: str) -> Any:
    """What a notebook's cell shows: the value of its last line."""
    *lines, last = code.strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102
    return eval(last, names)  # noqa: S307


def test_five_lines_sweep_two_cells_and_give_a_frame(printed: str) -> None:
    assert len(printed.strip().splitlines()) <= 7  # five statements
    frame = last_value(printed)
    assert list(frame["length"]) == [8192, 9000]
    assert list(frame["strict"]) == [1.0, 1.0]
    assert list(frame["samples"]) == list(frame["ok"]) == [2, 2]
    assert (frame["strict_low"] < 1).all()
    assert (frame["mean_turns"] >= 2).all()


async def test_they_work_where_an_event_loop_is_running(printed: str) -> None:
    assert asyncio.get_running_loop().is_running()
    assert len(last_value(printed)) == 2


def test_a_run_gives_its_samples_turns_and_report(printed: str, server: ReaderServer) -> None:
    last_value(printed)
    run = longmem.Run("results/mine")
    samples, turns = run.samples(), run.turns()
    assert list(samples["strict.sub_em"]) == [1.0] * 4
    assert len(turns) == samples["turns"].sum() == len(server.asked)
    assert set(turns["tag"]) == {"memory", "answer"}
    assert run.report().page.is_file()
    last_value(printed)  # goes on with what is owed: nothing
    assert len(server.asked) == len(turns)


def test_a_suite_is_changed_by_the_fields() -> None:
    plan = longmem.Sweep("pocket", models=["pocket-long"], lengths=[2048], samples=1).plan()
    assert [(c.model, c.method, c.length, c.samples) for c in plan.cells] == [
        ("pocket-long", "full_context", 2048, 1)
    ] * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give models and tasks and lengths, or the name of a suite"),
        (
            {"suite": "pocket", "models": "pocket-long"},
            r"models is 'pocket-long', expected a list of names",
        ),
        ({"suite": "poket"}, "did you mean pocket"),
        (
            {"models": ["pocket-long"], "tasks": ["vt"], "lengths": [2048], "samples": 0},
            "samples: got 0",
        ),
    ],
)
def test_what_cannot_be_is_told(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        longmem.Sweep(**fields).plan()


async def test_an_interrupt_ends_the_work_and_is_raised() -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_async(work())
    finally:
        signal.signal(signal.SIGINT, usual)
    assert ended.is_set()
    assert time.monotonic() - started < 20


async def test_errors_and_results_come_through_a_running_loop() -> None:
    async def seven() -> int:
        return 7

    async def wrong() -> int:
        raise ValueError("wrong")

    assert run_async(seven()) == 7
    with pytest.raises(ValueError, match="wrong"):
        run_async(wrong())


def test_the_version_is_in_one_place_and_in_every_run(printed: str) -> None:
    last_value(printed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with Store.read(Path("results/mine")) as store:
        (session,) = store.sessions()
    assert session["versions"]["longmem-bench"] == project["version"] == longmem.__version__
    shown = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "--version"], capture_output=True, text=True
    )
    assert shown.stdout.strip() == f"longmem-bench {project['version']}"
    for file in ("CITATION.cff", "CITATION.bib", "run.py", "longmem.py"):
        assert project["version"] not in (ROOT / file).read_text(encoding="utf-8")


def test_the_papers_can_be_cited_by_either_file() -> None:
    for file in ("CITATION.cff", "CITATION.bib"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "longmem-bench" in text
        for paper in ("2507.02259", "2602.10560", "2404.06654"):
            assert f"arxiv.org/abs/{paper}" in text
