"""The panels of the curves: one quantity, several, by task, and shares of exits.

Several runs (seeds, say) are laid over one another, each with dashes of its own. Where a panel
shows several quantities the colour is the quantity's, else the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from reports.figures.style import GREY, INK, TITLE_PAD_PT, dress
from reports.figures.training.metrics import SMOOTHED_STEPS, Points, Run
from reports.labels import DASHES, EXITS, PALETTE, compact

RUN_COLOURS = (INK, "#AA4499", "#997700", GREY)
KEY_ROW_PT = 9.0
"""Height of a row of a key, in points."""
KEY_CHARS = 60
"""So many characters of names fit side by side in a key."""

Panel = Callable[[Axes], int]
"""Draws itself; returns how many rows its key has above the axes."""


def one_quantity(
    runs: Sequence[Run],
    title: str,
    name: str,
    *,
    floor: float | None = None,
    top: float | None = None,
) -> Panel:
    """A panel of one quantity."""

    def draw(axes: Axes) -> int:
        dress(axes, title)
        for place, run in enumerate(runs):
            _line(axes, run, run.points(name), run_colour(place), dash(place))
        _limit(axes, floor, top)
        return 0

    return draw


def several_quantities(
    runs: Sequence[Run],
    title: str,
    quantities: Mapping[str, tuple[str, ...]],
    *,
    floor: float | None = None,
    top: float | None = None,
) -> Panel:
    """A panel of several quantities: label -> (metric,) or (metric, what it is divided by). Their
    colours go by their places; one that no run has is left out."""

    def draw(axes: Axes) -> int:
        for number, (label, metric) in enumerate(quantities.items()):
            colour, named = PALETTE[number % len(PALETTE)], label
            for place, run in enumerate(runs):
                points = run.points(*metric)
                if len(points[0]):
                    _line(axes, run, points, colour, dash(place), named)
                    named = ""
        _limit(axes, floor, top)
        return _titled_with_key(axes, title)

    return draw


def by_task(runs: Sequence[Run], title: str, metric: str) -> Panel:
    """A panel of a metric of each task."""
    prefixes = ("outcome/", "validation/strict/")
    # All tasks of the page, so that one has the same colour in every panel.
    tasks = sorted({task for run in runs for prefix in prefixes for task in run.tasks(prefix)})
    quantities = {task: (f"{metric}/{task}",) for task in tasks}
    return several_quantities(runs, title, quantities, floor=0.0, top=1.0)


def exit_shares(runs: Sequence[Run], axes: Axes) -> int:
    """Shares of exits before, at and after the last evidence; the mean over runs."""
    rows: dict[float, list[list[float]]] = {}
    for run in runs:
        columns = [smoothed(points, run.window_of(points)) for points in map(run.points, KINDS)]
        for values in zip(columns[0][0], *(shares for _, shares in columns), strict=True):
            rows.setdefault(values[0], []).append(list(values[1:]))
    steps = sorted(rows)
    shares = np.array([np.mean(rows[step], axis=0) for step in steps]).T
    axes.stackplot(steps, shares, labels=list(EXITS), colors=list(EXITS.values()), alpha=0.85)
    _limit(axes, 0.0, 1.0)
    return _titled_with_key(axes, "exits before, at and after the last evidence")


KINDS = tuple(f"exit_{kind}" for kind in EXITS)
"""The metrics of the shares."""


def _titled_with_key(axes: Axes, title: str) -> int:
    """The title, and between it and the axes, where no curve is, a key of what is drawn. Returns
    the key's rows."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(max(1, KEY_CHARS // max(map(len, labels), default=1)), 3)
    rows = -(-len(labels) // columns)
    dress(axes, title, pad=TITLE_PAD_PT + rows * KEY_ROW_PT)
    if rows:
        axes.legend(
            handles, labels, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1),
            fontsize=6.5, labelcolor=GREY, frameon=False, handlelength=1.4,
            borderpad=0, borderaxespad=0.5, columnspacing=1.2, labelspacing=0.3,
        )  # fmt: skip
    return rows


def _line(axes: Axes, run: Run, points: Points, colour: str, style: str, label: str = "") -> None:
    window = run.window_of(points)
    if window > 1:
        axes.plot(*points, color=colour, linewidth=0.6, alpha=0.3)
    steps, values = smoothed(points, window)
    marker = "o" if len(steps) < SMOOTHED_STEPS else ""
    axes.plot(
        *(steps, values), color=colour, linestyle=style, linewidth=1.3,
        marker=marker, markersize=2.2, label=label or None,
    )  # fmt: skip


def smoothed(points: Points, window: int) -> Points:
    """A running mean centred on each point, of fewer points at the ends."""
    steps, values = points
    sums = np.concatenate(([0.0], values.cumsum()))
    places = np.arange(len(values))
    low = np.maximum(places - window // 2, 0)
    high = np.minimum(places + window // 2 + 1, len(values))
    return steps, (sums[high] - sums[low]) / (high - low)


def _limit(axes: Axes, floor: float | None, top: float | None) -> None:
    low, high = axes.get_ylim()
    room = 0.03 if top is not None else 0.0
    axes.set_ylim(low if floor is None else floor - room, high if top is None else top + room)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1e3 else compact(value))


def run_colour(place: int) -> str:
    """Of a run by its place, where a panel has one quantity."""
    return RUN_COLOURS[place % len(RUN_COLOURS)]


def dash(place: int) -> str:
    """Of a run by its place."""
    return DASHES[place % len(DASHES)]
