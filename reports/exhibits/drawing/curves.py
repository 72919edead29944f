"""Curves: a number against length, one line a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

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
from reports.exhibits.grid import Column, Grid, View
from reports.figures.style import GREY, key_of
from reports.labels import Look, compact, length_label

PANEL_IN = 2.6
ROOM = 0.055
"""Of the width, that the label of a tick takes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A dashed line at a length, with a word beside it."""

    tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class LengthAxis:
    """How lengths lie across. `linear` takes only the ticks named; else each column has one, on
    a scale of powers of two."""

    linear: bool = False
    ticks: tuple[str, ...] = ()
    mark: Mark | None = None


def curves(
    name: str,
    grids: Sequence[Grid],
    style: Mapping[str, Look],
    axis: LengthAxis,
    below: Sequence[str] = (),
) -> Figure | None:
    """One panel a grid and view, one below the other; None without a number."""
    panels = [(grid, view) for grid in grids for view in grid.views]
    if not panels:
        return None
    names = {row.name: row for grid, view in panels for row in grid.seen(view)[0]}
    lines = [*below, *notes(grids, lettered=False)]
    across = 4 if max(len(row.label) for row in names.values()) <= 24 else 2
    room = 0.4 + legend_in(-(-len(names) // across)) + print_in(lines)
    figure = new_sheet(room + PANEL_IN * len(panels))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for ax, (grid, view) in zip(axes, panels, strict=True):
        _panel(ax, grid, view, style, axis)
    axes[-1].set_xlabel("context length in tokens")
    title(figure, name, [key_of(style[row]) for row in names], across)
    small_print(figure, lines)
    return figure


def _panel(ax: Axes, grid: Grid, view: View, style: Mapping[str, Look], axis: LengthAxis) -> None:
    rows, columns = grid.seen(view)
    dress(ax, heading(grid, view))
    values = grid.values(view)
    for row in rows:
        points = [
            (column.tokens, values[row.name, column.label], column)
            for column in columns
            if column.tokens is not None and (row.name, column.label) in values
        ]
        look = style[row.name]
        ax.plot(
            [x for x, _, _ in points], [y for _, y, _ in points], color=look.colour,
            linestyle=look.dash, marker=look.marker, markersize=4.2, linewidth=1.4, zorder=3,
            clip_on=False,
        )  # fmt: skip
        if view == "ours" and grid.measure == "accuracy":
            bars = [grid.ours[row.name, column.label] for _, _, column in points]
            ax.vlines(
                [x for x, _, _ in points], [b.low for b in bars], [b.high for b in bars],
                color=look.colour, alpha=0.35, linewidth=1.0,
            )  # fmt: skip
    _across(ax, columns, axis)
    _up(ax, grid, view)


def _across(ax: Axes, columns: Sequence[Column], axis: LengthAxis) -> None:
    ticks = [c for c in columns if c.tokens and (not axis.linear or c.label in axis.ticks)]
    if not ticks:  # a run's own lengths on a linear axis
        ticks = [column for column in columns if column.tokens]
    places = [column.tokens or 0 for column in ticks]
    last = max(column.tokens or 0 for column in columns)
    own_scale = axis.linear and any(column.label in axis.ticks for column in columns)
    if own_scale:
        ax.set_xlim(-0.01 * last, 1.01 * last)
    else:
        ax.set_xscale("log", base=2)
        ax.set_xlim(min(column.tokens or 1 for column in columns) / 1.2, last * 1.2)
    ax.xaxis.set_major_locator(FixedLocator(places))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(places, _staggered(ax, places))
    if axis.mark is not None and min(places) < axis.mark.tokens < last:
        ax.axvline(axis.mark.tokens, color="#c1121f", linestyle=(0, (4, 3)), linewidth=1.0)
        ax.annotate(
            axis.mark.text, (axis.mark.tokens, 1.0), xycoords=("data", "axes fraction"),
            xytext=(4, -1), textcoords="offset points", fontsize=7.5, color="#c1121f", va="top",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _staggered(ax: Axes, places: Sequence[int]) -> list[str]:
    """Labels of ticks, every second one a line lower where they would touch."""
    low, high = (math.log2(x) if ax.get_xscale() == "log" else x for x in ax.get_xlim())
    labels, last, lowered = [], -1.0, False
    for place in places:
        x = (math.log2(place) if ax.get_xscale() == "log" else place) - low
        share = x / (high - low)
        lowered = share - last < ROOM and not lowered
        labels.append(("\n" if lowered else "") + length_label(place))
        last = share
    return labels


def _up(ax: Axes, grid: Grid, view: View) -> None:
    ax.set_ylabel(unit_of(grid, view), fontsize=8, color=GREY)
    if view == "difference":
        ax.axhline(0, color=GREY, linewidth=0.8)
        return
    if grid.measure == "accuracy":
        most = max(grid.values(view).values(), default=0.0)
        ax.set_ylim(-2, 103 if most > 85 else 88)
        return
    ax.set_ylim(0, None)
    if grid.measure == "flops":
        ax.set_ylabel(f"{grid.unit} (1e18)")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e18:g}"))
    if grid.measure == "seconds":
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
