"""The maps of depth x length: which tasks they are of, and what stands in which square."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from matplotlib.axes import Axes

from reports.figures.depth import depth_figure
from reports.figures.heatmap import squares
from reports.run.data import Point
from reports.run.depths import depth_maps, split_depth
from reports.run.load import load_run
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Made, settings_for

Squares = dict[tuple[int, int], int | None]
Draw = Callable[[Axes, Sequence[Sequence[Point | None]]], None]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("niah_single_1@depth=0.25", ("niah_single_1", 0.25)),
        ("vt@hops=2,depth=0.5,form=ruler", ("vt@hops=2,form=ruler", 0.5)),
        ("niah", ("niah", None)),
        ("vt@hops=2", ("vt@hops=2", None)),
        ("vt@depth=deep", ("vt@depth=deep", None)),
        ("depth=0.5", ("depth=0.5", None)),
    ],
)
def test_a_depth_is_read_off_a_tasks_name(name: str, parts: tuple[str, float | None]) -> None:
    assert split_depth(name) == parts


def test_only_two_depths_or_more_make_a_map() -> None:
    names = ["a@depth=1.0", "a@depth=0.5", "a", "b@depth=0.5", "a@hops=2,depth=0.5"]
    assert depth_maps(names) == {"a": [(0.5, "a@depth=0.5"), (1.0, "a@depth=1.0")]}
    assert depth_maps(["c@depth=0", "c@depth=0.0"]) == {}  # one depth, written in two ways


def test_rows_are_depths_from_the_beginning_down_and_columns_are_lengths(
    build_run: BuildRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [
        Made("niah@depth=1.0", 2048, "memagent", "pocket", 2, [RIGHT, WRONG]),
        Made("niah@depth=0.0", 1024, "memagent", "pocket", 2, [RIGHT, RIGHT]),
        Made("niah@depth=0.0", 2048, "memagent", "pocket", 2, [WRONG, WRONG]),
        Made("vt", 4096, "memagent", "pocket", 2, [RIGHT]),
    ]
    panels: dict[Axes, Squares] = {}
    monkeypatch.setattr("reports.figures.depth.squares", _noting(panels, squares))
    figure = depth_figure(load_run(build_run(cells)), "strict")
    assert figure is not None
    ((axes, shown),) = panels.items()
    assert shown == {(0, 0): 100, (0, 1): 0, (1, 0): None, (1, 1): 50}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["start 0", "end 1"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1K", "2K"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first row is at the top
    assert [line.get_xdata() for line in axes.lines] == [[0.5, 0.5]]  # the window of 1,024


def test_each_task_and_series_has_a_panel(
    build_run: BuildRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [
        Made(f"{task}@depth={depth}", 1024, method, model, 1, [RIGHT])
        for task, model in (("niah", "a"), ("niah", "b"), ("vt", "a"))
        for method in ("memagent", "full_context")
        for depth in (0.0, 0.5, 1.0)
    ]
    panels: dict[Axes, Squares] = {}
    monkeypatch.setattr("reports.figures.depth.squares", _noting(panels, squares))
    drawn = depth_figure(load_run(build_run(cells, settings_for("a", "b"))), "strict")
    assert drawn is not None
    assert [axes.get_title(loc="left").replace("\n", " · ") for axes in panels] == [
        "niah · a · MemAgent",
        "niah · a · Full context",
        "niah · b · MemAgent",
        "niah · b · Full context",
        "vt · a · MemAgent",
        "vt · a · Full context",
    ]


def test_without_two_depths_there_is_no_figure(build_run: BuildRun) -> None:
    cells = [Made(t, 1024, "memagent", "pocket", 1, [RIGHT]) for t in ("niah@depth=0.5", "vt")]
    assert depth_figure(load_run(build_run(cells)), "strict") is None


def _noting(panels: dict[Axes, Squares], draw: Draw) -> Draw:
    """Draws squares as `draw` does, and notes (row, column) -> per cent of each."""

    def noting(ax: Axes, rows: Sequence[Sequence[Point | None]]) -> None:
        draw(ax, rows)
        panels[ax] = {
            (row, column): round(100 * point.value.mean) if point else None
            for row, line in enumerate(rows)
            for column, point in enumerate(line)
        }

    return noting
