"""Accuracy against costs: a line a series through its lengths, a panel a cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports.exhibits.drawing.page import dress, legend_in, new_sheet, print_in, small_print, title
from reports.labels import Look, compact, length_label

COSTS = {
    "flops": "operations a sample (forward)",
    "seconds": "request seconds a sample",
    "tokens": "tokens a sample",
}

BESIDE = ((0, 5, "center"), (0, -11, "center"), (6, -2, "left"), (-6, -2, "right"))
"""Where the label of a length stands, by the place of the series: points of two may meet."""

Points = Sequence[Mapping[str, float]]


def frontier_figure(name: str, lines: Mapping[Look, Points], below: Sequence[str]) -> Figure:
    """`lines`: look of a series -> its points: length, accuracy (per cent), and each cost."""
    figure = new_sheet(3.3 + legend_in(-(-len(lines) // 3)) + print_in(below))
    axes = figure.subplots(1, len(COSTS), sharey=True)
    for ax, (cost, label) in zip(axes, COSTS.items(), strict=True):
        dress(ax, "")
        known = [p[cost] for points in lines.values() for p in points if p[cost] == p[cost]]
        for place, (look, points) in enumerate(lines.items()):
            shown = [p for p in points if p[cost] == p[cost]]
            _line(ax, look, shown, cost, BESIDE[place % len(BESIDE)])
        ax.set_xlabel(label)
        if known:
            _scale(ax, known, cost)
        else:
            ax.set_xticks([])
            ax.text(
                *(0.5, 0.5, "sizes of the models\nare not known"), transform=ax.transAxes,
                ha="center", fontsize=8,
            )  # fmt: skip
    axes[0].set_ylabel("accuracy in per cent")
    axes[0].set_ylim(-3, 106)
    keys = [
        Line2D(
            *([], []),
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            markersize=4.5,
            linewidth=1.4,
            label=look.label,
        )
        for look in lines
    ]
    title(figure, name, keys, 3)
    small_print(figure, below)
    return figure


def _line(ax: Axes, look: Look, points: Points, cost: str, beside: tuple[int, int, str]) -> None:
    across, up, side = beside
    if not points:
        return
    ax.plot(
        [p[cost] for p in points], [p["accuracy"] for p in points], color=look.colour,
        linestyle=look.dash, marker=look.marker, markersize=4.2, linewidth=1.3, clip_on=False,
    )  # fmt: skip
    for point in {points[0]["length"]: points[0], points[-1]["length"]: points[-1]}.values():
        ax.annotate(
            length_label(round(point["length"])), (point[cost], point["accuracy"]),
            xytext=(across, up), textcoords="offset points", fontsize=6.5, color=look.colour,
            ha=side,
        )  # fmt: skip


def _scale(ax: Axes, known: Sequence[float], cost: str) -> None:
    ax.set_xscale("log")
    ax.set_xlim(min(known) / 1.6, max(known) * 1.6)
    decades = math.log10(max(known) / min(known))
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 2 else (1.0,), numticks=8))
    ax.xaxis.set_minor_locator(NullLocator())
    shown = (lambda value, _: f"{value:.0e}") if cost == "flops" else (lambda v, _: compact(v))
    ax.xaxis.set_major_formatter(FuncFormatter(shown))
