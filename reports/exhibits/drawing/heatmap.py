"""Heatmaps: models down, lengths or tasks across, the number in each square."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox, TransformedBbox
from seaborn.utils import relative_luminance

from reports.exhibits.drawing.page import (
    heading,
    legend_in,
    new_sheet,
    notes,
    print_in,
    small_print,
    title,
)
from reports.exhibits.grid import Column, Grid, Row, View
from reports.exhibits.models import OWN_COLOUR, Group, group_of
from reports.figures.style import GREY, INK

EVEN_LUMINANCE = 0.2
"""Where dark and white ink are equally easy to read."""

ROW_IN, PANEL_IN, HEAD_IN = 0.215, 0.65, 0.4
MAPS: Mapping[View, str] = {"published": "RdYlBu", "ours": "RdYlBu", "difference": "PuOr"}
"""The papers run from red over yellow to green; blue in green's place can be told from red
without colour vision."""

Panel = tuple[Grid, View]


@dataclass(frozen=True, slots=True)
class Beside:
    """Further columns, of words, at the right of our numbers: their heads, and by row."""

    heads: Sequence[str]
    texts: Mapping[str, Sequence[str]]


def heatmap(
    name: str,
    grids: Sequence[Grid],
    below: Sequence[str] = (),
    decimals: int = 2,
    beside: Beside | None = None,
) -> Figure | None:
    """One panel a grid and view, one below the other; None without a number."""
    panels = [(grid, view) for grid in grids for view in grid.views]
    if not panels:
        return None
    sizes = [len(grid.seen(view)[0]) for grid, view in panels]
    legend = _groups(panels)
    lines = [*below, *notes(grids)]
    room = HEAD_IN + print_in(lines) + (legend_in(-(-len(legend) // 5)) if len(legend) > 1 else 0)
    figure = new_sheet(room + sum(PANEL_IN + ROW_IN * size for size in sizes))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[s + 1.0 for s in sizes])
    for ax, (grid, view) in zip(axes[:, 0], panels, strict=True):
        _panel(ax, grid, view, decimals)
        if beside is not None and view == "ours":
            _put_beside(ax, grid, beside)
    patches = [
        Patch(facecolor=group.colour, edgecolor="#c9ced4", label=_group_label(group))
        for group in legend
    ]
    title(figure, name, patches if len(patches) > 1 else (), 5)
    small_print(figure, lines)
    return figure


def _groups(panels: Sequence[Panel]) -> list[Group]:
    """The groups, those of ours as one: their blocks have one colour, and rows name the method."""
    found = {
        OWN_COLOUR if group.colour == OWN_COLOUR else group.name: group
        for grid, view in panels
        for row in grid.seen(view)[0]
        for group in [group_of(row)]
    }
    return list(found.values())


def _group_label(group: Group) -> str:
    return "Models of ours" if group.colour == OWN_COLOUR else group.name


def _panel(ax: Axes, grid: Grid, view: View, decimals: int) -> None:
    rows, columns = grid.seen(view)
    values = grid.values(view)
    table = np.array(
        [[values.get((row.name, column.label), math.nan) for column in columns] for row in rows]
    )
    low, high = _limits(grid, view, table)
    text = [[_text(grid, view, row, column, decimals) for column in columns] for row in rows]
    sns.heatmap(
        table, ax=ax, annot=np.array(text), fmt="", cmap=_map(grid, view), vmin=low, vmax=high,
        annot_kws={"fontsize": 7}, linewidths=0.6, linecolor="white",
        xticklabels=[column.label for column in columns],
        yticklabels=[row.label for row in rows],
        cbar_kws={"pad": 0.01, "aspect": 18, "shrink": 0.9},
    )  # fmt: skip
    legible(ax, ~np.isnan(table).ravel())
    ax.set_facecolor("#f3f4f6")
    ax.tick_params(length=0, labelsize=7.5, colors=INK, rotation=0)
    if all(column.tokens for column in columns):
        ax.set_xlabel("context length in tokens", fontsize=7.5, color=GREY)
    ax.set_title(heading(grid, view), loc="left", fontsize=9, color=INK, pad=5)
    bar = ax.collections[0].colorbar
    if bar is not None:
        bar.ax.tick_params(labelsize=6.5, length=2, colors=GREY)
        bar.outline.set_visible(False)
        unit = "per cent" if grid.measure == "accuracy" else "seconds"
        if view == "difference" and grid.measure == "accuracy":
            unit = "points"
        bar.set_label(unit, fontsize=7, color=GREY)
        bar.ax.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    blocks(ax, rows)


def _put_beside(ax: Axes, grid: Grid, beside: Beside) -> None:
    rows, columns = grid.seen("ours")
    start, more = len(columns), len(beside.heads)
    for down, row in enumerate(rows):
        for across, text in enumerate(beside.texts[row.name]):
            ax.text(
                *(start + across + 0.5, down + 0.5, text), ha="center", va="center", fontsize=7,
                color=INK,
            )  # fmt: skip
    ax.add_patch(Rectangle((start, 0), more, len(rows), color="white", zorder=0))
    ax.set_xlim(0, start + more)
    labels = [*(column.label for column in columns), *beside.heads]
    ax.set_xticks([place + 0.5 for place in range(start + more)], labels)
    ax.tick_params(axis="x", labelsize=7)
    ax.set_xlabel(ax.get_xlabel(), x=start / (start + more) / 2)


def legible(ax: Axes, known: np.ndarray) -> None:
    """White numbers on dark squares only: the darker or the lighter ink, whichever has the higher
    contrast (WCAG 2.2). `known`: which squares have a number."""
    colours = np.asarray(ax.collections[0].get_facecolor())[known]
    for text, colour in zip(ax.texts, colours, strict=True):
        text.set_color(INK if relative_luminance(colour) > EVEN_LUMINANCE else "white")


def _limits(grid: Grid, view: View, table: np.ndarray) -> tuple[float, float]:
    if view == "difference":
        most = max(1.0, float(np.nanmax(abs(table))))
        return -most, most
    return (0.0, 100.0) if grid.measure == "accuracy" else (0.0, float(np.nanmax(table)))


def _map(grid: Grid, view: View) -> str:
    return "Purples" if grid.measure == "seconds" and view != "difference" else MAPS[view]


def _text(grid: Grid, view: View, row: Row, column: Column, decimals: int) -> str:
    place = row.name, column.label
    value = grid.values(view).get(place)
    if value is None:
        return ""
    marks = grid.marks(grid.ours[place]) if view == "ours" else ""
    return grid.text(view, value, decimals) + (f" {marks}" if marks else "")


def blocks(ax: Axes, rows: Sequence[Row]) -> None:
    """A coloured block behind the names of each group, and a grey rule below it."""
    across = ax.get_yaxis_transform
    start = 0
    for place, row in enumerate(rows):
        group = group_of(row)
        if place + 1 < len(rows) and group_of(rows[place + 1]).name == group.name:
            continue
        size = 0.995, place + 1 - start
        block = Rectangle((-1.0, start), *size, color=group.colour, transform=across(), zorder=-1)
        _add(ax, block)
        if place + 1 < len(rows):
            _add(ax, Line2D([-1.0, 1.0], [place + 1] * 2, color="#9aa3ad", transform=across()))
        start = place + 1


def _add(ax: Axes, artist: Artist) -> None:
    """Adds what reaches from the sheet's left edge into the axes; the layout does not see it."""
    figure = ax.get_figure(root=True)
    artist.set_in_layout(False)
    ax.add_artist(artist)
    if figure is not None:
        edge = Bbox.from_extents(0.003, 0.0, 1.0, 1.0)
        artist.set_clip_box(TransformedBbox(edge, figure.transFigure))
