"""A run as a file: what a report needs is in it, and it can be scored again."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

import run as command
from benchmarks.store import Store
from core.errors import UsageError
from reports.report import write_report
from reports.run.exported import EXPORTED, sidecar
from reports.run.load import load_run, load_runs
from reports.run.merged import export_runs
from reports.run.rescore import rescore
from reports.tables.accuracy import ledger_frame
from serving.limits.budget import Spent
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made

CELLS = [
    Made("vt", 1024, "memagent", "pocket", 3, [RIGHT, WRONG, Ended(error="timeout")]),
    Made("vt", 2048, "memagent", "pocket", 3, [Ended(memories=("a", "b"), counts={"exited": 1})]),
]


def exported(run_dir: Path, out: Path) -> Path:
    with Store.read(run_dir) as store:
        export_runs([store], out)
    return out


@pytest.mark.parametrize("name", ["samples.jsonl", "samples.jsonl.gz"])
def test_an_export_reads_as_the_run_that_it_is_of(
    name: str, build_run: BuildRun, tmp_path: Path
) -> None:
    run_dir = build_run(CELLS)
    out = exported(run_dir, tmp_path / name)
    ours, theirs = load_run(out), load_run(run_dir)
    assert ours == replace(theirs, name="samples", traces=())
    assert len(theirs.traces) == 1
    again = exported(run_dir, tmp_path / "again" / name)
    assert again.read_bytes() == out.read_bytes()
    assert sidecar(again).read_bytes() == sidecar(out).read_bytes()


def test_what_a_run_cost_is_in_its_export_and_in_the_ledger_of_several(
    build_run: BuildRun, tmp_path: Path
) -> None:
    run_dir = build_run(CELLS)
    unpriced = exported(run_dir, tmp_path / "unpriced.jsonl")
    with Store.write(run_dir) as store:
        (_, turn) = store.turns_of((2, 0, 0))[0]
        store.forget_turns((2, 0, 0), 0)
        store.add_turn((2, 0, 0), 0, "hash0", replace(turn, usd=0.25))
        store.keep_spent(Spent(0.5, 2.0))
    ours = load_run(exported(run_dir, tmp_path / "samples.jsonl"))
    assert ours.spent == Spent(0.5, 2.0)
    assert [cell.usd for cell in ours.cells] == [0.0, 0.25]
    assert ours.cell_usd == 0.25
    renamed = tmp_path / "other.jsonl"
    renamed.write_text(unpriced.read_text().replace('"vt"', '"other"'))
    sidecar(renamed).write_text(sidecar(unpriced).read_text().replace('"vt"', '"other"'))
    together = load_runs([run_dir, renamed])
    assert together.spent == Spent(0.5, 2.0)
    assert [cell.usd for cell in together.cells] == [0.0, 0.25, None, None]
    usd = ledger_frame(together)["usd"].tolist()
    assert usd[:2] == [0.0, 0.25]
    assert all(value != value for value in usd[2:])
    assert "usd" not in ledger_frame(load_run(unpriced))
    page = write_report([unpriced], tmp_path / "page").page.read_text()
    assert 'class="n">USD' not in page
    assert "The endpoint took" not in page


def test_a_report_of_an_export_has_the_numbers_of_the_run(
    build_run: BuildRun, tmp_path: Path
) -> None:
    run_dir = build_run(CELLS)
    out = exported(run_dir, tmp_path / "samples.jsonl.gz")
    with pytest.raises(UsageError, match="give --out"):
        write_report([out])
    files = write_report([out], tmp_path / "page")
    assert "holds answers and no turns" in files.page.read_text()
    for table, other in zip(files.tables, write_report([run_dir]).tables, strict=True):
        if table.suffix == ".csv":
            assert table.read_bytes() == other.read_bytes()


def test_what_an_export_does_not_know_is_left_empty(build_run: BuildRun, tmp_path: Path) -> None:
    out = exported(build_run(CELLS), tmp_path / "samples.jsonl")
    out.write_text(out.read_text().replace('"cut_turns": 0', '"cut_turns": null'))
    (cell, _) = load_run(out).cells
    assert (cell.cut_samples, cell.cut_turns, cell.failed) == (None, None, 1)
    write_report([out], tmp_path / "page")
    ledger = (tmp_path / "page" / "tables" / "ledger.csv").read_text()
    assert "\nvt,1024,memagent,pocket,3,1,3,0,2,1,1,,,0," in ledger


def test_a_damaged_export_is_refused_with_its_place(build_run: BuildRun, tmp_path: Path) -> None:
    out = exported(build_run(CELLS), tmp_path / "samples.jsonl")
    lines = out.read_text().splitlines()
    short = {name: value for name, value in json.loads(lines[1]).items() if name != "meta"}
    out.write_text("\n".join([lines[0], json.dumps(short)]) + "\n")
    with pytest.raises(UsageError, match="line 2: lacks meta"):
        load_run(out)
    other = json.loads(lines[0]) | {"length": 7}
    out.write_text(json.dumps(other) + "\n")
    with pytest.raises(UsageError, match=r"line 1: .* is no cell"):
        load_run(out)
    sidecar(out).unlink()
    with pytest.raises(UsageError, match=r"samples\.run\.json is not beside it"):
        load_runs([out])


def test_a_run_and_its_export_are_scored_again_to_the_same(
    build_run: BuildRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrongly = Ended(1.0, 1.0, reply="Therefore, the answer is 421.", prediction="421")
    run_dir = build_run([Made("vt", 1024, "memagent", "pocket", 2, [RIGHT, wrongly])])
    out = exported(run_dir, tmp_path / "samples.jsonl.gz")
    assert command.main(["rescore", str(run_dir)]) == 0
    told = capsys.readouterr().out
    assert "2 samples scored again, 2 changed" in told  # the made-up em is no metric of vt
    assert "strict.sub_em: 0 up, 1 down" in told
    assert rescore(out).down == {"strict.sub_em": 1}
    for path in (run_dir, out):
        (cell,) = load_run(path).cells
        found = {profile: list(cell.by_sample[profile].values()) for profile in cell.by_sample}
        assert found == {"strict": [1.0, 0.0], "published": [1.0, 1.0]}
        assert rescore(path).changed == 0
        assert len(load_run(path).sessions) == 2  # a pass that changes nothing leaves no trace
    with gzip.open(out, "rt") as lines:
        assert list(json.loads(next(lines))) == list(EXPORTED)


def test_a_folder_without_a_run_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run\.sqlite"):
        rescore(tmp_path / "nowhere")
    assert not list(tmp_path.iterdir())
