"""Accuracy against costs: a line a series through its lengths, a panel a cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports.exhibits.drawing.page import dress, legend_in, new_sheet, print_in, small_print, title
from reports.figures.style import key_of
from reports.labels import Look, compact, length_label

COSTS = {
    "flops": "operations a sample (forward)",
    "seconds": "request seconds a sample",
    "tokens": "tokens a sample",
}
SMALLEST, LARGEST = 3.2, 8.0
"""Points across a marker, of the shortest and the longest length. Lengths are told by the size of
the markers: labels beside the points of several lines would cover one another."""

Points = Sequence[Mapping[str, float]]


def frontier_figure(name: str, lines: Mapping[Look, Points], below: Sequence[str]) -> Figure:
    """`lines`: look of a series -> its points: length, accuracy (per cent), and each cost."""
    lengths = sorted({round(p["length"]) for points in lines.values() for p in points})
    told = f"Markers grow with the length: {', '.join(map(length_label, lengths))} tokens."
    small = [told, *below] if len(lengths) > 1 else [*below]
    figure = new_sheet(3.3 + legend_in(-(-len(lines) // 3)) + print_in(small))
    axes = figure.subplots(1, len(COSTS), sharey=True)
    for ax, (cost, label) in zip(axes, COSTS.items(), strict=True):
        dress(ax, "")
        for look, points in lines.items():
            _line(ax, look, [p for p in points if p[cost] == p[cost]], cost, lengths)
        ax.set_xlabel(label)
        _scale(ax, [p[cost] for points in lines.values() for p in points], cost)
    axes[0].set_ylabel("accuracy in per cent")
    axes[0].set_ylim(-3, 106)
    title(figure, name, [key_of(look) for look in lines], 3)
    small_print(figure, small)
    return figure


def _line(ax: Axes, look: Look, points: Points, cost: str, lengths: Sequence[int]) -> None:
    if not points:  # an empty line makes the layout fail
        return
    ax.plot(
        [p[cost] for p in points], [p["accuracy"] for p in points], color=look.colour,
        linestyle=look.dash, linewidth=1.2, clip_on=False,
    )  # fmt: skip
    for point in points:
        place = lengths.index(round(point["length"])) / max(len(lengths) - 1, 1)
        ax.plot(
            point[cost], point["accuracy"], look.marker, color=look.colour,
            markersize=SMALLEST + (LARGEST - SMALLEST) * place, markeredgecolor="white",
            markeredgewidth=0.6, clip_on=False, zorder=3 - place,
        )  # fmt: skip


def _scale(ax: Axes, costs: Sequence[float], cost: str) -> None:
    known = [value for value in costs if value == value]
    if not known:
        ax.set_xticks([])
        ax.text(
            *(0.5, 0.5, "sizes of the models\nare not known"), transform=ax.transAxes,
            ha="center", fontsize=8,
        )  # fmt: skip
        return
    ax.set_xscale("log")
    ax.set_xlim(min(known) / 1.6, max(known) * 1.6)
    decades = math.log10(max(known) / min(known))
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 2 else (1.0,), numticks=8))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(_power if cost == "flops" else _amount))


def _power(value: float, _: int) -> str:
    """3e+11 -> 3e11."""
    return f"{value:.0e}".replace("e+", "e")


def _amount(value: float, _: int) -> str:
    return compact(value)
