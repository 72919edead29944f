"""Accuracy against costs: a line a series through its lengths, a panel a cost."""

from __future__ import annotations

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

Points = Sequence[Mapping[str, float]]


def frontier_figure(name: str, lines: Mapping[Look, Points], below: Sequence[str]) -> Figure:
    """`lines`: look of a series -> its points: length, accuracy (per cent), and each cost."""
    figure = new_sheet(3.3 + legend_in(-(-len(lines) // 3)) + print_in(below))
    axes = figure.subplots(1, len(COSTS), sharey=True)
    for ax, (cost, label) in zip(axes, COSTS.items(), strict=True):
        dress(ax, "")
        known = [p[cost] for points in lines.values() for p in points if p[cost] == p[cost]]
        for look, points in lines.items():
            _line(ax, look, [p for p in points if p[cost] == p[cost]], cost)
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


def _line(ax: Axes, look: Look, points: Points, cost: str) -> None:
    if not points:
        return
    ax.plot(
        [p[cost] for p in points], [p["accuracy"] for p in points], color=look.colour,
        linestyle=look.dash, marker=look.marker, markersize=4.2, linewidth=1.3, clip_on=False,
    )  # fmt: skip
    for point in {points[0]["length"]: points[0], points[-1]["length"]: points[-1]}.values():
        ax.annotate(
            length_label(round(point["length"])), (point[cost], point["accuracy"]),
            xytext=(0, 5), textcoords="offset points", fontsize=6.5, color=look.colour,
            ha="center",
        )  # fmt: skip


def _scale(ax: Axes, known: Sequence[float], cost: str) -> None:
    ax.set_xscale("log")
    ax.set_xlim(min(known) / 1.6, max(known) * 1.6)
    ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_minor_locator(NullLocator())
    if cost != "flops":
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
