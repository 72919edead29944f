"""On runs whose samples fail on purpose, every cause is named right, and all of them add up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.ledger import ledger
from benchmarks.store import Store
from core.tokens import Tokenizer
from reports.causes.cause import Cause
from reports.causes.diagnosed import Runs
from reports.causes.survey import Survey
from reports.figures import causes
from reports.report import surveyed, write_report
from reports.run.load import load_runs
from tests.reports.causes.planted import GROUPS, Truth, planted_run


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def planted(tokenizer: Tokenizer, run_dir: Path) -> dict[tuple[str, int], Truth]:
    return planted_run(tokenizer, run_dir)


def test_every_planted_cause_is_named(run_dir: Path, planted: dict[tuple[str, int], Truth]) -> None:
    runs = Runs([run_dir])
    found = {
        (one.cell.model, one.row["index"]): Truth(
            one.diagnosis.cause,
            one.diagnosis.gate,
            one.diagnosis.turns_lived,
            one.diagnosis.turn,
            one.diagnosis.fact,
            one.diagnosis.guessed,
        )
        for one in runs.diagnosed(range(len(runs.places)))
    }
    assert {key: (truth, found[key]) for key, truth in planted.items() if found[key] != truth} == {}
    causes = Counter(truth.cause for truth in planted.values())
    assert causes.keys() == {None, *Cause} - {Cause.UNKNOWN}
    assert len(planted) == sum(group.samples for group in GROUPS) >= 200
    assert min(causes.values()) >= 4


def test_causes_add_up_to_the_failures_of_each_cell(
    run_dir: Path, planted: dict[tuple[str, int], Truth]
) -> None:
    runs = Runs([run_dir])
    survey = Survey.of(runs)
    for one in runs.diagnosed(range(len(runs.places))):
        survey.add(one)
    with Store.read(run_dir) as store:
        rows = ledger(store)
    wrong = Counter(model for (model, _), truth in planted.items() if truth.cause)
    for cell, row in zip(survey.cells, rows, strict=True):
        assert cell.finished == row.attempted == row.cell.samples
        assert cell.causes.total() == cell.failures == wrong[cell.cell.model]


def test_the_same_store_gives_the_same_report(
    run_dir: Path, planted: dict[tuple[str, int], Truth], tmp_path: Path
) -> None:
    written = []
    for name in ("one", "other"):
        write_report([run_dir], tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        written.append({str(f.relative_to(tmp_path / name)): f.read_bytes() for f in files})
    assert written[0] == written[1]
    names = ("figures/causes", "figures/lifelines", "figures/survival", "figures/memory")
    expected = {*(f"{name}.png" for name in names), "tables/causes.csv", "tables/decay.csv"}
    assert expected <= written[0].keys()


def test_too_many_panels_of_causes_become_one_for_all_tasks(
    run_dir: Path, planted: dict[tuple[str, int], Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_runs([run_dir])
    survey, _ = surveyed(run, Runs([run_dir]))
    each = causes._panels(run, survey)
    together = causes._of_all_tasks(run, each)
    assert [*together] == [(causes.ALL_TASKS, series) for series in run.all_series]
    failures = [
        sum(cell.failures for cells in panels.values() for cell in cells)
        for panels in (each, together)
    ]
    assert failures == [survey.failures] * 2
    drawn = [causes.causes_figure(run, survey)]
    monkeypatch.setattr(causes, "MOST_PANELS", len(each) - 1)
    drawn.append(causes.causes_figure(run, survey))
    assert None not in drawn
    assert drawn[0] != drawn[1]
