"""Bars by task, and stacked bars of where the reading ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from reports.exhibits.drawing.page import (
    dress,
    heading,
    legend_in,
    new_sheet,
    notes,
    print_in,
    small_print,
    title,
    unit_of,
)
from reports.exhibits.grid import Grid, View
from reports.figures.style import INK
from reports.labels import EXITS, Look, length_label

PANEL_IN = 2.4
HATCHES = ("", "////", "....", "xxxx")
"""By which bars of one colour are told apart: a model's samplings share theirs."""


class Face(TypedDict):
    """A bar's colour, the pattern on it, and that pattern's colour."""

    facecolor: str
    hatch: str
    edgecolor: str
    linewidth: float


@dataclass(frozen=True, slots=True)
class Exits:
    """Where the readings of one series at one length ended, as shares of its samples by the kinds
    of `EXITS`."""

    series: str
    length: int
    shares: Mapping[str, float]
    samples: int


def bars(
    name: str, grids: Sequence[Grid], style: Mapping[str, Look], below: Sequence[str] = ()
) -> Figure | None:
    """One panel a grid and view: a group of bars a column, one bar a model."""
    panels = [(grid, view) for grid in grids for view in grid.views]
    if not panels:
        return None
    rows = {row.name: row for grid, view in panels for row in grid.seen(view)[0]}
    lines = [*below, *notes(grids, lettered=False)]
    figure = new_sheet(0.5 + legend_in(-(-len(rows) // 3)) + print_in(lines) + 2.4 * len(panels))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    faces = fills_of([style[name].colour for name in rows])
    fills = dict(zip(rows, faces, strict=True))
    for ax, (grid, view) in zip(axes, panels, strict=True):
        _bars(ax, grid, view, fills)
    keys = [Patch(**fills[row.name], label=row.label) for row in rows.values()]
    title(figure, name, keys, 3)
    small_print(figure, lines)
    return figure


def fills_of(colours: Sequence[str]) -> list[Face]:
    """How each bar is filled; one whose colour was there already has a pattern as well."""
    return [
        {
            "facecolor": colour,
            "hatch": HATCHES[colours[:place].count(colour) % len(HATCHES)],
            "edgecolor": "white",
            "linewidth": 0.0,
        }
        for place, colour in enumerate(colours)
    ]


def _bars(ax: Axes, grid: Grid, view: View, fills: Mapping[str, Face]) -> None:
    rows, columns = grid.seen(view)
    dress(ax, heading(grid, view))
    values, width = grid.values(view), min(0.3, 0.8 / len(rows))
    for number, row in enumerate(rows):
        shown = [
            (place, values[row.name, column.label])
            for place, column in enumerate(columns)
            if (row.name, column.label) in values
        ]
        middle = (number - (len(rows) - 1) / 2) * width
        at = [place + middle for place, _ in shown]
        ax.bar(at, [value for _, value in shown], 0.92 * width, **fills[row.name])
        if view == "ours" and grid.measure == "accuracy":
            ours = [grid.ours[row.name, columns[place].label] for place, _ in shown]
            ax.vlines(at, [o.low for o in ours], [o.high for o in ours], color=INK, linewidth=0.8)
    ax.set_xticks(range(len(columns)), [column.label for column in columns])
    ax.set_xlim(-0.6, max(len(columns), 3) - 0.4)
    ax.set_ylabel(unit_of(grid, view))


def exit_bars(name: str, shares: Sequence[Exits], below: Sequence[str] = ()) -> Figure:
    """One panel a series: at each length the shares of early, exact and late ends."""
    series = list(dict.fromkeys(one.series for one in shares))
    figure = new_sheet(0.75 + print_in(below) + 2.1 * -(-len(series) // 2))
    axes = figure.subplots(-(-len(series) // 2), min(2, len(series)), squeeze=False)
    for ax in axes.flat[len(series) :]:
        ax.set_visible(False)
    for ax, label in zip(axes.flat, series, strict=False):
        _exit_panel(ax, label, [one for one in shares if one.series == label])
    title(figure, name, [Patch(color=colour, label=kind) for kind, colour in EXITS.items()])
    small_print(figure, below)
    return figure


def _exit_panel(ax: Axes, label: str, shares: Sequence[Exits]) -> None:
    dress(ax, label)
    bottom = [0.0] * len(shares)
    for kind, colour in EXITS.items():
        heights = [100 * one.shares[kind] for one in shares]
        ax.bar(range(len(shares)), heights, 0.72, bottom=bottom, color=colour)
        for place, (low, height) in enumerate(zip(bottom, heights, strict=True)):
            if height >= 8:
                ax.text(
                    place, low + height / 2, f"{height:.3g}", ha="center", va="center",
                    fontsize=7, color="white",
                )  # fmt: skip
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    ax.set_xticks(range(len(shares)), [length_label(one.length) for one in shares])
    ax.set_ylim(0, 100)
    ax.set_ylabel("per cent of samples")
    ax.set_xlabel("context length in tokens")
