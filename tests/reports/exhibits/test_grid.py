"""Published numbers and ours in one grid: apart, with the means that the papers form."""

from __future__ import annotations

import pytest

from reports.exhibits.build import at_lengths, over_lengths
from reports.exhibits.grid import Grid, filled, letter
from reports.exhibits.models import GATED, RL, rows_of
from reports.exhibits.papers.memagent import ALL_ROWS, RULER_LENGTHS, SYNTHETIC
from reports.run.load import load_run
from reports.run.published import read_published
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Made, settings_for

TABLE_2 = Grid("", "accuracy", rows_of(RL), at_lengths("ruler_hqa", ("7K", "14K")), ("Table 2",))
FIGURE_6A = Grid(
    *("", "accuracy", ALL_ROWS),
    at_lengths("ruler_synthetic_avg10", RULER_LENGTHS, SYNTHETIC),
    ("Figure 6a",),
)


def test_published_numbers_fill_their_squares() -> None:
    grid = filled(FIGURE_6A, read_published(), None)
    assert len(grid.published) == 14 * 7
    assert grid.published["RL-MemAgent-14B", "512K"] == 95.4
    assert grid.views == ("published",)


def test_ours_stands_beside_the_published_number_with_the_difference(build_run: BuildRun) -> None:
    settings = settings_for("agent", published_name="RL-MemAgent-14B")
    made = [Made("ruler_hqa_files", 7000, "memagent", "agent", 4, [RIGHT, RIGHT, RIGHT, WRONG])]
    grid = filled(TABLE_2, read_published(), load_run(build_run(made, settings)))
    place = "RL-MemAgent-14B", "7K"
    assert grid.views == ("published", "ours", "difference")
    assert grid.published[place] == 83.59
    assert grid.ours[place].value == 75.0
    assert grid.differences[place] == pytest.approx(75.0 - 83.59)
    assert grid.notes == ("4 samples, published: 128",)
    assert grid.marks(grid.ours[place]) == "a"


def test_a_mean_of_ten_tasks_is_compared_only_when_all_ten_are_there(build_run: BuildRun) -> None:
    settings = settings_for("agent", published_name="RL-MemAgent-14B")
    made = [
        Made(task, length, "memagent", "agent", 1, [RIGHT if task == "vt" else WRONG])
        for task in SYNTHETIC
        for length in (8192, 16384)
        if (task, length) != ("fwe", 16384)
    ]
    grid = filled(FIGURE_6A, read_published(), load_run(build_run(made, settings)))
    whole, part = (grid.ours["RL-MemAgent-14B", label] for label in ("8K", "16K"))
    assert (whole.value, whole.comparable) == (pytest.approx(10.0), True)
    assert (part.value, part.comparable) == (pytest.approx(100 / 9), False)
    assert part.deviations[-1].startswith("mean of 9 of 10 tasks (niah_single_1")
    assert [*grid.differences] == [("RL-MemAgent-14B", "8K")]


def test_a_mean_over_lengths_names_those_that_it_is_of(build_run: BuildRun) -> None:
    column = over_lengths(
        {"niah_single_1": "SK-1"}, "avg 7K-896K", {"niah_single_1": ("8K", "16K")}
    )
    base = Grid("", "seconds", rows_of(GATED), column, ("Table 1",), own_lengths=False)
    settings = settings_for("mine", published_name="GRU-Mem-7B (w EG)")
    made = [Made("niah_single_1", 8192, "gru_mem", "mine", 1, [RIGHT])]
    grid = filled(base, read_published(), load_run(build_run(made, settings)))
    ours = grid.ours["GRU-Mem-7B (w EG)", "SK-1"]
    assert ours.value == 0.5
    assert ours.deviations[-1] == "mean of 1 of 2 lengths (8K)"
    assert grid.differences == {}
    assert "queue" in grid.timed


def test_a_model_of_ours_has_a_row_and_lengths_of_its_own(build_run: BuildRun) -> None:
    made = [
        Made("niah_single_1", length, "memagent", "pocket", 2, [RIGHT, WRONG])
        for length in (2048, 8192)
    ]
    base = Grid("", "accuracy", ALL_ROWS, at_lengths("niah_single_1", RULER_LENGTHS))
    grid = filled(base, read_published(), load_run(build_run(made)))
    assert grid.views == ("ours",)
    rows, columns = grid.seen("ours")
    assert [row.label for row in rows] == ["MemAgent"]
    assert [column.label for column in columns] == ["2K", "8K"]


def test_letters_go_on_after_z() -> None:
    assert [letter(n) for n in (0, 25, 26, 27)] == ["a", "z", "aa", "ab"]
