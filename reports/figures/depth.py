"""The maps of a run by depth: where in the context the gold stood down, lengths across."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes

from reports.figures.curves import count_line, whose
from reports.figures.heatmap import points_at, squares, squares_axes
from reports.figures.panels import TITLE_CHARS, broken, further_lines_in
from reports.figures.style import GREY, INK, Rendered, foot, head, new_figure, render
from reports.labels import Series
from reports.run.data import RunData
from reports.run.depths import DepthMap

MOST_SQUARES, MOST_PANELS = 20, 3
"""How many squares, and panels, stand side by side in a figure."""


class Panel(NamedTuple):
    """The map of a series at a base task."""

    base: str
    rows: DepthMap
    series: Series


def depth_figure(run: RunData, profile: str) -> Rendered | None:
    """Per base task and series a map of accuracy, depths down and lengths across; None if the
    run has no task at two or more depths."""
    if not run.depth_maps:
        return None
    lines = _lines_of_panels(run)
    columns = max(map(len, lines))
    lengths = _lengths(run)
    titles = _titles(run, TITLE_CHARS // columns)
    over = 0.62 + further_lines_in(list(titles.values()))
    heights = [over + 0.3 * max(len(panel.rows) for panel in line) for line in lines]
    figure = new_figure(1.0 + sum(heights))
    grid = figure.add_gridspec(len(lines), columns, height_ratios=heights)
    for down, line in enumerate(lines):
        for across, panel in enumerate(line):
            ax = figure.add_subplot(grid[down, across])
            title = titles[panel.base, panel.series]
            ax.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6)
            _map(ax, run, panel, lengths, profile)
            named = across == 0 or line[across - 1].rows != panel.rows
            squares_axes(ax, lengths, [_depth_label(d) if named else "" for d, _ in panel.rows])
            if across == 0:
                ax.set_ylabel("depth", fontsize=8, color=GREY)
            _window(ax, run, panel.series, lengths)
    head(figure, "Accuracy in per cent by depth and length" + whose(run))
    foot(figure, _small_print(run, profile, lengths))
    return render(
        figure,
        f"depth_{profile}",
        f"Accuracy by depth and length, {profile} scoring",
        "One heatmap a task, model and method: where in the context the answer stands, from the "
        f"beginning (top) to the end (bottom), by context length; {profile} scoring.",
    )


def _lines_of_panels(run: RunData) -> list[list[Panel]]:
    """The panels as they stand, line by line, all lines of a task about equally long. A task's
    series stand side by side; with one series, the tasks do."""
    by_task = [
        [Panel(base, rows, series) for series in _series_of(run, rows)]
        for base, rows in run.depth_maps.items()
    ]
    if all(len(panels) == 1 for panels in by_task):
        by_task = [[panel for panels in by_task for panel in panels]]
    most = max(1, min(MOST_PANELS, MOST_SQUARES // len(_lengths(run))))
    lines = []
    for panels in by_task:
        count = -(-len(panels) // most)
        size = -(-len(panels) // count)
        lines += [panels[start : start + size] for start in range(0, len(panels), size)]
    return lines


def _series_of(run: RunData, rows: DepthMap) -> list[Series]:
    """The series that have a task at any of its depths, in the order of the plan."""
    return list(dict.fromkeys(series for _, task in rows for series in run.series_of(task)))


def _titles(run: RunData, room: int) -> dict[tuple[str, Series], str]:
    """What stands over each panel: the task, and the series where there are several. In several
    lines if one of them has more than `room` characters."""
    style = run.looks()
    several = len(style) > 1
    names = {
        (base, series): [base, style[series].label] if several else [base]
        for base, rows in run.depth_maps.items()
        for series in _series_of(run, rows)
    }
    fits = all(len(" · ".join(parts)) <= room for parts in names.values())
    if fits:
        return {key: " · ".join(parts) for key, parts in names.items()}
    return {key: "\n".join(broken(part, room) for part in parts) for key, parts in names.items()}


def _lengths(run: RunData) -> list[int]:
    """All lengths of the maps, so that columns of all panels are the same."""
    mapped = run.depth_tasks
    return sorted({cell.length for cell in run.cells if cell.task in mapped})


def _map(ax: Axes, run: RunData, panel: Panel, lengths: list[int], profile: str) -> None:
    rows = [points_at(run, task, panel.series, lengths, profile) for _, task in panel.rows]
    squares(ax, rows)


def _depth_label(depth: float) -> str:
    return {0.0: "start 0", 1.0: "end 1"}.get(depth, f"{depth:g}")


def _window(ax: Axes, run: RunData, series: Series, lengths: list[int]) -> None:
    """A dashed line before the first length that the model's window does not hold."""
    window = run.model(series.model).get("window")
    for place, (short, long) in enumerate(pairwise(lengths)):
        if isinstance(window, int) and short <= window < long:
            ax.axvline(place + 0.5, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))


def _small_print(run: RunData, profile: str, lengths: list[int]) -> str:
    mapped = run.depth_tasks
    cells = [cell for cell in run.cells if cell.task in mapped]
    count = count_line(cells)
    text = (
        "Down: where in the context the answer stands. Across: context length in tokens. "
        f"{count} a square; a failed sample counts as 0. Scoring: {profile}."
    )
    windows = {run.model(cell.series.model).get("window") for cell in cells}
    inside = {w for w in windows if isinstance(w, int) and lengths[0] <= w < lengths[-1]}
    if inside:
        what = f"window of {inside.pop():,} tokens" if len(windows) == 1 else "window"
        text += (
            f"\nRight of the dashed line: longer than the model's {what}; full context is cut in "
            "the middle there."
        )
    if any(cell.owed for cell in cells):
        text += "\nHatched: not all samples are finished yet."
    return text
