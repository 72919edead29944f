"""`kill -9` at random moments, then the same command: nothing lost, nothing asked twice.

The command line, the HTTP client and the store are the real ones; the model is a perfect
reader behind a small HTTP server in this process, slowed down so that kills fall mid-sample.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from benchmarks.store import Store
from core.tokens import Tokenizer
from tests.conftest import ROOT
from tests.reader import ReaderServer, reader

SUITE = """
summary = "killed"
models = ["reader"]
methods = ["memagent", "full_context"]
[sampling]
temperature = 0.0
[method_settings.memagent]
chunk_tokens = 400
[method_settings.full_context]
input_tokens = 900
[[cells]]
tasks = ["niah_single_1"]
lengths = [2048, 4096]
samples = {samples}
"""


@pytest.fixture
def server(tokenizer: Tokenizer) -> Iterator[ReaderServer]:
    with reader(tokenizer) as server:
        yield server


@pytest.fixture
def command(tmp_path: Path, tokenizer: Tokenizer, server: ReaderServer) -> list[str]:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    write_suite(tmp_path, samples=4)
    flags = ["--endpoint", server.url, "--tokenizer", str(tmp_path), "--concurrency", "3"]
    return [sys.executable, str(ROOT / "run.py"), "sweep", str(tmp_path / "killed.toml"), *flags]


def write_suite(folder: Path, samples: int) -> None:
    (folder / "killed.toml").write_text(SUITE.format(samples=samples))


def stored_requests(run_dir: Path) -> Counter[str]:
    if not (run_dir / "run.sqlite").is_file():
        return Counter()
    with Store.read(run_dir) as store:
        return Counter(row["request"] for row in store.turn_rows())


def whole_run(command: list[str], out: Path, server: ReaderServer) -> Counter[str]:
    """What an unbroken run asks. A turn may ask what another asked: noise repeats itself."""
    before = len(server.asked)
    assert start(command, out).wait(timeout=300) == 0
    return Counter(server.asked[before:])


def endings(run_dir: Path) -> list[tuple[object, ...]]:
    with Store.read(run_dir) as store:
        return [
            (r["id"], r["length"], r["method"], r["index"], r["reply"], json.dumps(r["scores"]))
            for r in store.sample_rows()
        ]


def start(
    command: list[str], out: Path, log: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command, "--out", str(out)], stdout=log, stderr=log)


def wait_for(server: ReaderServer, requests: int, process: subprocess.Popen[bytes]) -> None:
    """Until the server was asked so often by a sweep that still runs."""
    deadline = time.monotonic() + 60
    while len(server.asked) < requests:
        assert process.poll() is None, "the sweep ended before its kill"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("kills", "samples"), [(10, 4), pytest.param(100, 40, marks=pytest.mark.cluster)]
)
def test_kills_lose_nothing(
    tmp_path: Path, command: list[str], server: ReaderServer, kills: int, samples: int
) -> None:
    write_suite(tmp_path, samples)
    out = tmp_path / "killed"
    needed = whole_run(command, tmp_path / "whole", server)
    random_turns = random.Random(7)
    for _ in range(kills):
        known = stored_requests(out)
        before = len(server.asked)
        process = start(command, out)
        wait_for(server, before + random_turns.randint(1, 9), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(2 * server.delay_s)
        assert known + Counter(server.asked[before:]) <= needed

    known = stored_requests(out)
    assert known + whole_run(command, out, server) == needed
    assert endings(out) == endings(tmp_path / "whole")
    assert len(endings(out)) == 2 * 2 * samples


def test_ctrl_c_leaves_a_run_that_goes_on(
    tmp_path: Path, command: list[str], server: ReaderServer
) -> None:
    out = tmp_path / "stopped"
    needed = whole_run(command, tmp_path / "whole", server)
    # A shell's background jobs ignore it, and so would the process started here.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(command, out)
    finally:
        signal.signal(signal.SIGINT, usual)
    wait_for(server, len(server.asked) + 8, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 1
    known = stored_requests(out)
    assert known
    assert known + whole_run(command, out, server) == needed


@pytest.mark.parametrize("inherited", [signal.default_int_handler, signal.SIG_IGN])
def test_a_term_signal_leaves_a_run_that_goes_on(
    tmp_path: Path, command: list[str], server: ReaderServer, inherited: Any
) -> None:
    """As Slurm and Kubernetes send it; also to a job in a script's background, which inherits
    Ctrl-C as ignored."""
    out = tmp_path / "stopped"
    needed = whole_run(command, tmp_path / "whole", server)
    usual, log = signal.signal(signal.SIGINT, inherited), tmp_path / "log"
    try:
        with log.open("wb") as stream:
            process = start(command, out, stream)
    finally:
        signal.signal(signal.SIGINT, usual)
    wait_for(server, len(server.asked) + 8, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1
    assert "same command" in log.read_text()
    assert not re.search("Traceback|exception|ignored", log.read_text())
    known = stored_requests(out)
    assert known
    assert known + whole_run(command, out, server) == needed
