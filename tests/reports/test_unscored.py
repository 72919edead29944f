"""A run whose samples have no gold: it is shown, and nothing of it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ledger import ledger
from benchmarks.store import Cell, Store
from core.context import Context
from core.types import Answer, Failure, Problem, Sample, Turn
from reports.page.verdict import verdict
from reports.report import write_report
from reports.run.load import load_run
from reports.run.rescore import rescore
from tests.reports.conftest import settings_for


def unscored(run_dir: Path, *, with_gold: bool = False) -> Path:
    """Two methods on a task without golds, one of which failed; a task with golds, if wanted."""
    tasks: Mapping[str, Any] = {"documents": {"metric": ""}, "vt": {"metric": "sub_em"}}
    cells = [
        Cell(0, "documents", 2048, "memagent", "pocket", 1),
        Cell(1, "documents", 2048, "full_context", "pocket", 1),
    ]
    golden = [Cell(2, "vt", 2048, "memagent", "pocket", 1)] if with_gold else []
    with Store.write(run_dir) as store:
        store.set_up({**settings_for("pocket"), "tasks": tasks}, [*cells, *golden])
        sample = Sample("a", "documents", 0, Problem(Context(["x"]), "What?"), (), "any")
        store.add_turn((0, 0, 0), 0, "h", Turn("answer", (), "It is so.", "stop", 10, 2, 0.5))
        store.finish_sample(0, sample, Answer("It is so.", None), {})
        store.finish_sample(1, sample, Failure("timeout", "no reply"), {})
        if with_gold:
            gold = Sample("b", "vt", 0, Problem(Context(["x"]), "What?"), ("so",), "any")
            scores = {p: {"sub_em": 1.0} for p in ("strict", "published")}
            store.finish_sample(2, gold, Answer("so", "so"), scores)
    return run_dir


def test_its_page_shows_the_rollout_and_no_score(tmp_path: Path) -> None:
    files = write_report([unscored(tmp_path / "run")])
    page = files.page.read_text(encoding="utf-8")
    assert "It is so." in page
    assert "nothing is scored" in page
    assert "Gold answer" not in page
    assert "Accuracy table" not in page
    assert "1 sample ended in an error" in page
    tables = {path.stem for path in files.tables}
    assert tables == {"ledger", "efficiency", "causes"}  # of the failure, by its error
    assert {path.stem for path in files.figures} == {"cost"}


def test_it_is_in_no_denominator(tmp_path: Path) -> None:
    run = load_run(unscored(tmp_path / "run", with_gold=True))
    assert [cell.score("strict") is None for cell in run.cells] == [True, True, False]
    assert run.panels == ["vt"]
    assert "100% right" in verdict(run)
    with Store.read(tmp_path / "run") as store:
        assert [row.scores for row in ledger(store)] == [{}, {}, {"strict": 1.0, "published": 1.0}]


def test_scoring_it_again_leaves_it_alone(tmp_path: Path) -> None:
    assert rescore(unscored(tmp_path / "run")).samples == 0
