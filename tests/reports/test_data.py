"""The numbers of a run against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.store import Store
from core.arithmetic.intervals import wilson
from core.errors import StoreError, UsageError
from reports.labels import Series
from reports.run.load import load_run
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

MEM = Series("memagent", "pocket")
FULL = Series("full_context", "pocket")


def test_failures_stay_in_the_denominator_as_zeros(build_run: BuildRun) -> None:
    ended = [RIGHT, RIGHT, WRONG, Ended(error="timeout"), Ended(error="crash")]
    run = load_run(build_run([Made("niah", 1024, "memagent", "pocket", 5, ended)]))
    (cell,) = run.cells
    assert (cell.ok, cell.failed, cell.finished, cell.owed) == (3, 2, 5, 0)
    assert cell.errors == {"crash": 1, "timeout": 1}
    score = cell.score("strict")
    assert score is not None
    assert score.mean == pytest.approx(2 / 5)  # not 2/3
    assert (score.low, score.high) == wilson(2 / 5, 5)
    assert [(e.kind, e.count) for e in run.errors] == [("timeout", 1), ("crash", 1)]
    assert "no reply in 120 s" in run.errors[0].message


def test_draws_of_a_sample_count_as_one_where_it_is_compared(build_run: BuildRun) -> None:
    drawn = [RIGHT, RIGHT, RIGHT, WRONG]  # both samples, and both again
    made = Made("niah", 1024, "memagent", "pocket", 2, drawn, draws=3)
    (cell,) = load_run(build_run([made])).cells
    assert (cell.samples, cell.asked, cell.finished, cell.owed) == (2, 6, 4, 2)
    assert cell.by_sample["strict"] == {"niah-0": 1.0, "niah-1": 0.5}
    score = cell.score("strict")
    assert score is not None
    assert (score.mean, score.n) == (0.75, 4)
    assert (score.low, score.high) == wilson(0.75, 3)  # 0.1875 over a variance of 1/16 of the mean


def test_profiles_are_never_mixed(build_run: BuildRun) -> None:
    ended = [Ended(published=1.0, strict=0.0), Ended(published=1.0, strict=0.5)]
    (cell,) = load_run(build_run([Made("niah", 1024, "memagent", "pocket", 2, ended)])).cells
    published, strict = cell.score("published"), cell.score("strict")
    assert published is not None
    assert strict is not None
    assert (published.mean, strict.mean) == (1.0, 0.25)
    assert set(cell.scores["strict"]) == {"sub_em", "em"}  # `unparsed` is a count, no score


def test_an_unfinished_cell_is_partial_and_an_unstarted_one_has_no_score(
    build_run: BuildRun,
) -> None:
    cells = [
        Made("niah", 1024, "memagent", "pocket", 4, [RIGHT, WRONG]),
        Made("niah", 2048, "memagent", "pocket", 4),
    ]
    run = load_run(build_run(cells))
    begun, untouched = run.cells
    assert (begun.finished, begun.owed) == (2, 2)
    assert (untouched.finished, untouched.owed, untouched.score("strict")) == (0, 4, None)
    assert math.isnan(untouched.cost.turns)
    (point,) = run.line("niah", MEM, "strict")
    assert point.partial
    assert point.value.n == 2


def test_counts_of_cut_and_unparsed_and_costs(build_run: BuildRun) -> None:
    ended = [
        Ended(1.0, 1.0, memories=("a", "b"), cut=True),
        Ended(prediction=None),
        Ended(error="timeout", memories=("a",)),
    ]
    (cell,) = load_run(build_run([Made("niah", 1024, "memagent", "pocket", 3, ended)])).cells
    assert (cell.cut_samples, cell.cut_turns, cell.unparsed) == (1, 3, 1)
    # Of the two that ended well: 3 turns and 1 turn, 100 prompt tokens and 0.5 s a turn.
    assert cell.cost.turns == 2.0
    assert cell.cost.prompt_tokens == 200.0
    assert cell.cost.completion_tokens == 20.0
    assert cell.cost.seconds == 1.0
    assert cell.cost.truncated_tokens == 7.0


def test_the_average_waits_for_every_task(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "pocket", 2, [RIGHT, RIGHT]),
        Made("vt", 1024, "memagent", "pocket", 2, [WRONG, RIGHT]),
        Made("niah", 2048, "memagent", "pocket", 2, [RIGHT, RIGHT]),
        Made("vt", 2048, "memagent", "pocket", 2),
    ]
    run = load_run(build_run(cells))
    (point,) = run.line(None, MEM, "strict")
    assert point.length == 1024
    assert point.value.mean == 0.75
    assert run.line(None, FULL, "strict") == []


def test_a_task_that_not_all_series_have_is_no_part_of_the_mean(build_run: BuildRun) -> None:
    cells = [
        Made(task, 1024, method, "pocket", 1, [RIGHT if task == "niah" else WRONG])
        for task in ("niah", "vt")
        for method in ("memagent", "full_context")
    ]
    early = Made("niah@depth=0.1", 1024, "memagent", "pocket", 1, [WRONG])
    run = load_run(build_run([*cells, early]))
    assert run.mean_tasks == ["niah", "vt"]
    assert run.panels == [None, "niah", "vt", "niah@depth=0.1"]
    assert run.task_label(None) == "mean of 2 tasks"
    assert [p.value.mean for p in run.line(None, MEM, "strict")] == [0.5]
    assert run.series_of("niah@depth=0.1") == [MEM]


def test_a_task_at_several_depths_is_no_part_of_the_mean(build_run: BuildRun) -> None:
    cells = [
        *(Made(task, 1024, "memagent", "pocket", 1, [RIGHT]) for task in ("niah", "vt")),
        *(Made(f"vt@depth={d}", 2048, m, "pocket", 1, [WRONG]) for d in (0, 1) for m in ("x", "y")),
    ]
    run = load_run(build_run(cells))
    assert run.mean_tasks == ["niah", "vt"]
    assert run.task_label(None) == "mean of 2 tasks"
    assert run.series_of(None) == [MEM]  # no row of dashes for those that have depths only
    assert run.beside_depths().panels == [None, "niah", "vt"]
    assert len(run.beside_depths().cells) == 2


def test_depths_alone_have_a_mean(build_run: BuildRun) -> None:
    ended = {0.0: [RIGHT], 0.5: [WRONG]}
    cells = [Made(f"vt@depth={d}", 1024, "memagent", "pocket", 1, e) for d, e in ended.items()]
    run = load_run(build_run(cells))
    assert run.task_label(None) == "mean of all depths"
    assert [p.value.mean for p in run.line(None, MEM, "strict")] == [0.5]
    assert run.beside_depths().cells == ()


def test_tasks_that_share_no_places_have_no_mean(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "pocket", 1, [RIGHT]),
        Made("vt", 2048, "memagent", "pocket", 1, [RIGHT]),
    ]
    run = load_run(build_run(cells))
    assert (run.mean_tasks, run.panels) == ([], ["niah", "vt"])
    assert run.line(None, MEM, "strict") == []


def test_the_score_of_a_task_is_the_metric_that_the_run_names(build_run: BuildRun) -> None:
    settings = settings_for("pocket") | {"tasks": {"niah": {"metric": "recall", "parameters": {}}}}
    run_dir = build_run([Made("niah", 1024, "memagent", "pocket", 1, [RIGHT])], settings)
    _set_metrics(run_dir, {"recall": 0.5, "rouge": 0.4})
    (cell,) = load_run(run_dir).cells
    score = cell.score("strict")
    assert score is not None
    assert (cell.metric, score.mean) == ("recall", 0.5)


def _set_metrics(run_dir: Path, metrics: dict[str, float]) -> None:
    with Store.write(run_dir) as store, store._transaction() as db:
        db.execute("DELETE FROM score")
        rows = [(1, 0, 0, p, m, v) for p in ("strict", "published") for m, v in metrics.items()]
        db.executemany("INSERT INTO score VALUES (?, ?, ?, ?, ?, ?)", rows)


def test_a_sample_without_its_score_is_an_error_that_names_it(build_run: BuildRun) -> None:
    run_dir = build_run([Made("niah", 1024, "memagent", "pocket", 2, [RIGHT, RIGHT])])
    with Store.write(run_dir) as store, store._transaction() as db:
        db.execute("DELETE FROM score WHERE idx = 1 AND profile = 'strict'")
    with pytest.raises(StoreError, match="niah 1024 memagent pocket sample 1"):
        load_run(run_dir)


def test_a_run_without_a_finished_sample_says_so(build_run: BuildRun, tmp_path: Path) -> None:
    run_dir = build_run([Made("niah", 1024, "memagent", "pocket", 4)])
    with pytest.raises(UsageError, match="no sample of 4 has ended yet"):
        load_run(run_dir)
    with pytest.raises(UsageError, match=r"no run\.sqlite"):
        load_run(tmp_path / "nowhere")


def test_a_trace_is_picked_by_place_and_shows_where_the_memory_found_the_gold(
    build_run: BuildRun,
) -> None:
    memories = ("nothing",) * 9 + ("it is 42",) + ("it is 42",) * 5
    agent = Ended(1.0, 1.0, memories=memories)
    cells = [
        Made("niah", length, method, "pocket", 2, [agent if method == "memagent" else WRONG] * 2)
        for length in (1024, 2048, 4096)
        for method in ("memagent", "full_context")
    ]
    first, second = load_run(build_run(cells)).traces
    assert (first.series, second.series) == (MEM, FULL)
    assert (first.length, first.index, first.total_turns) == (2048, 0, 16)
    assert [turn.number for turn in first.turns] == [1, 2, 10, 14, 15, 16]
    assert [turn.skipped for turn in first.turns] == [0, 0, 7, 3, 0, 0]
    assert [turn.same for turn in first.turns] == [False, True, False, True, True, False]
    assert first.turns[-1].tag == "answer"


def test_a_run_can_be_read_while_it_is_written(build_run: BuildRun) -> None:
    run_dir = build_run([Made("niah", 1024, "memagent", "pocket", 2, [RIGHT])])
    with Store.write(run_dir):
        assert load_run(run_dir).cells[0].finished == 1
