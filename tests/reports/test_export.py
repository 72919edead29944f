"""Runs in other tools' forms, read back by those tools."""

from __future__ import annotations

import filecmp
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import Cell, Store
from commands.flags import POCKET
from core.tokens import Tokenizer
from core.types import Answer, TokenSpan, Turn
from run import main
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

READ_BACK = Path(__file__).with_name("read_inspect.py")
ROOT = Path(__file__).resolve().parents[2]


def a_run(build_run: BuildRun) -> Path:
    """Two cells: an agent with memories and a failure, a baseline that is not finished."""
    long = Ended(1.0, 0.0, memories=("first", "second"), counts={"chunks_read": 2})
    settings = settings_for("pocket", methods={"memagent": {"chunk_tokens": 512}})
    cells = [
        Made("niah", 1024, "memagent", "pocket", 3, [long, WRONG, Ended(error="timeout")]),
        Made("vt@hops=2", 2048, "full_context", "pocket", 2, [RIGHT]),
    ]
    return build_run(cells, settings)


def exported(run_dir: Path, form: str, out: Path, *flags: str) -> Path:
    assert main(["export", str(run_dir), "--form", form, "--out", str(out), *flags]) == 0
    return out


def test_parquet_has_every_sample_and_turn_with_types(build_run: BuildRun, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = exported(a_run(build_run), "parquet", tmp_path / "out")
    samples = pq.read_table(out / "samples.parquet").to_pylist()
    assert [(s["task"], s["index"], s["status"]) for s in samples] == [
        ("niah", 0, "ok"), ("niah", 1, "ok"), ("niah", 2, "error"), ("vt@hops=2", 0, "ok"),
    ]  # fmt: skip
    assert (samples[0]["published"], samples[0]["strict"], samples[0]["turns"]) == (1.0, 0.0, 3)
    assert json.loads(samples[0]["counts"]) == {"chunks_read": 2}
    assert {"profile": "strict", "metric": "em", "value": 0.0} in samples[0]["scores"]
    assert (samples[2]["strict"], samples[2]["error_kind"]) == (0.0, "timeout")
    turns = pq.read_table(out / "turns.parquet").to_pylist()
    assert [(t["index"], t["turn"], t["reply"]) for t in turns[:3]] == [
        (0, 0, "first"), (0, 1, "second"), (0, 2, RIGHT.reply),
    ]  # fmt: skip
    assert json.loads((out / "run.json").read_text())["cells"][1][0] == "vt@hops=2"


def test_parquet_is_written_in_blocks(
    build_run: BuildRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr("reports.interop.columns.BLOCK_ROWS", 2)
    out = exported(a_run(build_run), "parquet", tmp_path / "out")
    assert pq.ParquetFile(out / "samples.parquet").num_row_groups == 2
    assert pq.read_table(out / "samples.parquet").num_rows == 4


def test_datasets_loads_the_folder(build_run: BuildRun, tmp_path: Path) -> None:
    import datasets

    out = exported(a_run(build_run), "datasets", tmp_path / "out")
    cache = str(tmp_path / "cache")
    turns = datasets.load_dataset(str(out), "turns", split="run", cache_dir=cache)
    assert turns.num_rows == 6
    samples = datasets.load_dataset(str(out), "samples", split="run", cache_dir=cache)
    assert samples[0]["golds"] == ["42"]


@pytest.mark.parametrize("form", ["parquet", "datasets", "inspect"])
def test_the_same_run_gives_the_same_bytes(build_run: BuildRun, tmp_path: Path, form: str) -> None:
    run_dir = a_run(build_run)
    first, second = (exported(run_dir, form, tmp_path / name) for name in ("a", "b"))
    names = sorted(path.name for path in first.iterdir())
    assert filecmp.cmpfiles(first, second, names, shallow=False) == (names, [], [])


def test_a_log_is_a_cell_and_quotes_no_prompt(build_run: BuildRun, tmp_path: Path) -> None:
    out = exported(a_run(build_run), "inspect", tmp_path / "out")
    first, second = sorted(out.glob("*.eval"))
    assert first.name == "2026-11-20T19-00-00_niah-1024-memagent-pocket_0001.eval"
    with zipfile.ZipFile(first) as log:
        sample = json.loads(log.read("samples/niah-0_epoch_1.json"))
        header = json.loads(log.read("header.json"))
    assert [m["role"] for m in sample["messages"]] == ["user", "assistant"] * 3
    assert "100 prompt tokens" in sample["messages"][0]["content"]
    assert header["status"] == "success"
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == pytest.approx(0.0)
    with zipfile.ZipFile(second) as log:
        assert json.loads(log.read("header.json"))["status"] == "cancelled"  # one sample is owed


def test_inspect_reads_the_logs_back(build_run: BuildRun, tmp_path: Path) -> None:
    python = _python_with_inspect()
    out = exported(a_run(build_run), "inspect", tmp_path / "out")
    done = subprocess.run(
        [python, str(READ_BACK), str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout.splitlines()[-1])
    assert found["tasks"] == ["niah@1024", "vt@hops=2@2048"]
    assert found["statuses"] == ["success", "cancelled"]
    assert found["messages"] == [6, 2, 2, 2]
    assert found["errors"] == [None, None, "timeout: no reply in 120 s", None]
    assert found["published"] == [1.0, 0.0, 0.0, 1.0]
    assert found["tokens"] == [330, 110, 110, 110]
    assert found["evals_df"] == {"rows": 2, "models": ["pocket"]}
    assert found["samples_df"] == {"rows": 4, "strict": [0.0, 0.0, 0.0, 1.0]}
    assert found["messages_df"] == 12


def _python_with_inspect() -> str:
    """The Python that has inspect_ai: this one, or that of an environment of its own, since its
    needs (fsspec up to 2026.6.0) are not those of the project's set."""
    own = ROOT / ".venv-inspect" / "bin" / "python"
    for python in (sys.executable, str(own)):
        if (
            Path(python).is_file()
            and not subprocess.run(
                [python, "-c", "import inspect_ai"], capture_output=True, check=False
            ).returncode
        ):
            return python
    pytest.skip(
        "inspect_ai is not there: python3 -m venv .venv-inspect && "
        ".venv-inspect/bin/pip install inspect-ai==0.3.285 pandas pyarrow"
    )


def niah_run(run_dir: Path, known_id: str | None = None) -> str:
    """A run of one real sample that two turns read; returns the text of its tokens."""
    tokenizer = Tokenizer.load(POCKET)
    task = find_task("niah_single_1")
    sample = task.sample(Coordinates(0, 512, 7), Materials(tokenizer, Corpora(None)))
    ids = [one for block in sample.problem.context.tokens(tokenizer) for one in block]
    spans = TokenSpan(0, 100), TokenSpan(100, len(ids))
    with Store.write(run_dir) as store:
        settings = settings_for("pocket", source=str(POCKET), tokenizer=tokenizer.fingerprint)
        store.set_up(settings, [Cell(1, "niah_single_1", 512, "memagent", "pocket", 1)])
        for number, span in enumerate(spans):
            turn = Turn("memory", (), "none", "stop", 10, 2, 0.5, reads=(span,))
            store.add_turn((1, 0, 0), number, f"h{number}", turn)
        stored = replace(sample, id=known_id or sample.id)
        scores = {"published": {"sub_em": 0.0}, "strict": {"sub_em": 0.0}}
        store.finish_sample(1, stored, Answer("none", None), scores)
    return tokenizer.decode(ids)


def test_chunk_texts_are_made_again_on_request(tmp_path: Path) -> None:
    text = niah_run(tmp_path / "run")
    out = exported(tmp_path / "run", "inspect", tmp_path / "out", "--chunk-texts")
    (path,) = out.glob("*.eval")
    with zipfile.ZipFile(path) as log:
        (name,) = (name for name in log.namelist() if name.startswith("samples/"))
        messages = json.loads(log.read(name))["messages"]
    assert messages[0]["content"] + messages[2]["content"] == text
    assert len(text) > 500


def test_texts_of_another_sample_are_not_passed_off_as_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    niah_run(tmp_path / "run", known_id="of another version")
    out = ["--out", str(tmp_path / "out"), "--chunk-texts"]
    assert main(["export", str(tmp_path / "run"), "--form", "inspect", *out]) == 2
    assert "made again, the sample is another one" in capsys.readouterr().err
    assert not [*(tmp_path / "out").glob("*.eval")]


def test_flags_that_do_not_go_together_are_refused(
    build_run: BuildRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = a_run(build_run)
    for flags, said in (
        (["--form", "parquet", "--turns"], "--turns: only with --form jsonl"),
        (["--form", "parquet", "--chunk-texts"], "--chunk-texts: only with --form inspect"),
    ):
        assert main(["export", str(run_dir), "--out", str(tmp_path / "o"), *flags]) == 2
        assert said in capsys.readouterr().err
