"""`run.py tasks generate`: a suite's cells, by any number of workers, gone on with after a stop."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import run
from core.errors import SettingsChanged, UsageError
from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.output import generate as generating
from tasks.output.generate import CellFile, Making, generate
from tasks.output.progress import SamplesProgress
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.conftest import ROOT

POCKET = str(ROOT / "checkpoints" / "pocket-base")
CELLS = [
    CellFile("niah_single_1", 1_024, 3),
    CellFile("niah_multikey_3", 2_000, 2),
    CellFile("cwe@common=3", 2_000, 2),
    CellFile("fwe", 1_500, 2),
    CellFile("vt", 1_024, 2),
    CellFile("ruler_hqa", 1_500, 3),
    CellFile("qa_1@whole_corpus_at_most=true", 8_000, 2),
    CellFile("niah_multivalue", 1_500, 2),
    CellFile("fiction_mixed", 2_000, 2),
]

pytestmark = pytest.mark.usefixtures("pocket")


def make(
    out: Path, corpora: Corpora, *, cells: list[CellFile] = CELLS, workers: int = 1, **settings: Any
) -> tuple[int, int]:
    wanted: dict[str, Any] = {"form": "index", "seed": 7, "data": corpora.data_dir} | settings
    progress = SamplesProgress({cell.name: (cell.samples, cell.length) for cell in cells})
    return generate(Making(out, tokenizer=POCKET, **wanted), cells, workers, progress)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, corpora: Corpora) -> None:
    for workers in (1, 2, 4):
        done = make(tmp_path / str(workers), corpora, workers=workers, form="memagent")
        assert done[0] == len(CELLS)
    one = contents(tmp_path / "1")
    assert len(one) == len(CELLS) + 1
    assert contents(tmp_path / "2") == contents(tmp_path / "4") == one


def test_a_line_of_the_index_tells_the_sample_that_is_made_alone(
    tmp_path: Path, corpora: Corpora, pocket: Tokenizer
) -> None:
    _, tokens = make(tmp_path / "out", corpora)
    counted = 0
    for cell in CELLS:
        lines = (tmp_path / "out" / cell.task / f"{cell.length}.jsonl").read_text().splitlines()
        assert len(lines) == cell.samples
        for index, line in reversed(list(enumerate(lines))):
            row = json.loads(line)
            sample = find_task(cell.task).sample(
                Coordinates(index, cell.length, 7), Materials(pocket, Corpora(corpora.data_dir))
            )
            text = sample.problem.context.text().encode()
            assert row["id"] == sample.id
            assert (row["question"], row["golds"]) == (sample.problem.question, list(sample.golds))
            assert row["context_bytes"] == len(text)
            assert row["context_sha256"] == hashlib.sha256(text).hexdigest()
            assert row["context_tokens"] == sample.problem.context.count(pocket)
            counted += row["context_tokens"]
    assert counted == tokens


def test_what_is_finished_is_not_made_again(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    make(whole, corpora)
    written: list[str] = []
    export = generating.export_samples

    def stop_at_third(samples: Any, form: str, out: Path, *more: Any) -> int:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(out.parent.name)
        return export(samples, form, out, *more)

    monkeypatch.setattr(generating, "export_samples", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "out", corpora)
    assert len(contents(tmp_path / "out")) == 3
    written.append("the stop is over")
    assert make(tmp_path / "out", corpora)[0] == len(CELLS) - 2
    assert not set(written[:2]) & set(written[3:])
    assert contents(tmp_path / "out") == contents(whole)
    assert make(tmp_path / "out", corpora) == (0, 0)
    # A file that is gone, or wanted with more samples, is made again, and only that.
    (tmp_path / "out" / "vt" / "1024.jsonl").unlink()
    assert make(tmp_path / "out", corpora)[0] == 1
    assert make(tmp_path / "out", corpora, cells=[CellFile("vt", 1_024, 3), *CELLS[:4]])[0] == 1
    assert len((tmp_path / "out" / "vt" / "1024.jsonl").read_text().splitlines()) == 3


def test_nothing_is_written_outside_the_folder(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    before = contents(corpora.data_dir or tmp_path).keys()
    make(tmp_path / "out", corpora)
    assert not contents(home)
    assert contents(corpora.data_dir or tmp_path).keys() == before


def test_other_settings_or_corpora_are_refused(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, few = tmp_path / "out", [CELLS[0], CELLS[5]]
    make(out, corpora, cells=few)
    for settings in ({"seed": 8}, {"form": "ruler"}):
        with pytest.raises(SettingsChanged, match=f"another {next(iter(settings))}"):
            make(out, corpora, cells=few, **settings)
    data = tmp_path / "data"
    data.mkdir()
    source = next(path for path in (corpora.data_dir or data).rglob("hotpot*.json"))
    items = json.loads(source.read_text())
    (data / source.name).write_text(json.dumps(items[:30]))
    with pytest.raises(SettingsChanged, match="another hotpotqa"):
        make(out, corpora, cells=[CellFile("ruler_hqa", 1_400, 2)], data=data)
    (out / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="delete it to begin anew"):
        make(out, corpora, cells=few)


def test_a_cell_that_cannot_be_made_is_told_before_anything_is_written(
    tmp_path: Path, corpora: Corpora
) -> None:
    with pytest.raises(UsageError, match="documents of the corpus"):
        make(tmp_path / "out", corpora, cells=[*CELLS, CellFile("qa_1", 100_000, 1)])
    assert not (tmp_path / "out").exists()


def test_the_command_makes_a_suite(
    tmp_path: Path, corpora: Corpora, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(
        'summary = "x"\nmodels = ["pocket-base"]\n'
        '[[cells]]\nmethods = ["memagent"]\ntasks = ["vt", "fwe"]\nlengths = [1024, 1500]\n'
        'samples = 2\n[[cells]]\nmethods = ["full_context"]\ntasks = ["vt"]\nlengths = [1024]\n'
        "samples = 3\n"
    )
    out = tmp_path / "out"
    words = ["tasks", "generate", str(suite), "--out", str(out)]
    assert run.main([*words, "--lengths", "1024"]) == 0
    assert "2 of 2 cells made now" in capsys.readouterr().out
    assert run.main(words) == 0
    said = capsys.readouterr().out
    assert "2 of 4 cells made now" in said
    assert "MB of memory" in said
    assert len((out / "vt" / "1024.jsonl").read_text().splitlines()) == 3
    assert run.main([*words, "--tasks", "cwe"]) == 2
    assert "no cell has one of these" in capsys.readouterr().err
    assert run.main([*words, "--depth", "0.25"]) == 2
    assert "setting 'depth' is not known" in capsys.readouterr().err, "fwe has none"
    assert run.main([*words, "--tasks", "vt", "--lengths", "1024", "--depth", "0.25"]) == 0
    row = json.loads((out / "vt@depth=0.25" / "1024.jsonl").read_text().splitlines()[0])
    sample = find_task("vt@depth=0.25").sample(
        Coordinates(0, 1024, 42), Materials(Tokenizer.load(POCKET), corpora)
    )
    assert row["id"] == sample.id


def test_the_papers_set_has_all_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.suite import load_suite

    cells = {
        (task.partition("@")[0], length)
        for block in load_suite("memagent_evaluation").cells
        for task in block.tasks
        for length in block.lengths
        if block.samples == 128
    }
    by_task = {name: [n for task, n in cells if task == name] for name, _ in cells}
    assert len(by_task) == 12
    assert len(by_task.pop("ruler_hqa_published")) == 10
    assert sorted(by_task.pop("qa_1")) == [8_192 << i for i in range(6)]
    assert all(sorted(lengths) == [8_192 << i for i in range(7)] for lengths in by_task.values())
    assert not {"cwe", "qa_2"} & by_task.keys()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_how_far_it_is(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tasks.output.progress.time.monotonic", lambda: now[0])
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100)
    progress = SamplesProgress({"a 8": (10, 100), "b 8": (10, 300), "c 8": (10, 100)}, console)
    progress.made("a 8", 10)
    progress.made("b 8", 1)
    assert file.getvalue() == "", "quick commands stay quiet"
    now[0] = 10.0
    progress.made("b 8", 5)
    now[0] = 10.1
    progress.made("b 8", 6)
    progress.finish()
    said = file.getvalue()
    assert ("\x1b" in said) == terminal
    assert "cells 1/3  b 8: " in said
    if not terminal:
        assert said == "50%  cells 1/3  b 8: 5 of 10 samples\n"
