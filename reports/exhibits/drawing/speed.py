"""GRU-Mem's heatmaps: the number is the accuracy, the shading the speed-up over MemAgent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from core.names import base_of
from reports.exhibits.drawing.heatmap import PANEL_IN, ROW_IN, blocks, legible
from reports.exhibits.drawing.page import new_sheet, notes, print_in, small_print, title
from reports.exhibits.grid import Grid, Row
from reports.exhibits.models import group_of
from reports.figures.style import GREY, INK

REFERENCE = "MemAgent"
MOST = 10.0
"""The speed-up with the darkest shading: what stops at once would leave all others pale."""


def speed_heatmap(name: str, pairs: Sequence[tuple[Grid, Grid]]) -> Figure | None:
    """One panel a pair of grids (accuracy, seconds), of ours."""
    shown = [(accuracy, seconds) for accuracy, seconds in pairs if accuracy.ours]
    if not shown:
        return None
    sizes = [len(accuracy.seen("ours")[0]) for accuracy, _ in shown]
    lines = [
        "Numbers: accuracy in per cent. Shading: seconds of MemAgent on the same model size (or "
        "the run's first MemAgent) over the row's; palest without one.",
        *notes([grid for pair in shown for grid in pair]),
    ]
    figure = new_sheet(0.4 + print_in(lines) + sum(PANEL_IN + ROW_IN * max(s, 2) for s in sizes))
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=[s + 1.0 for s in sizes])
    for ax, (accuracy, seconds) in zip(axes[:, 0], shown, strict=True):
        _panel(ax, accuracy, speed_ups(seconds))
    title(figure, name)
    small_print(figure, lines)
    return figure


def speed_ups(seconds: Grid) -> dict[tuple[str, str], float]:
    """MemAgent's seconds over a row's, where both were measured at a length."""
    found = {}
    for row in seconds.rows:
        reference = _reference(seconds, row)
        for column in seconds.columns:
            mine = seconds.ours.get((row.name, column.label))
            theirs = seconds.ours.get((reference.name, column.label)) if reference else None
            if mine and theirs and mine.value > 0:
                found[row.name, column.label] = theirs.value / mine.value
    return found


def _reference(grid: Grid, row: Row) -> Row | None:
    for other in grid.rows:
        same = (other.series is None) == (row.series is None)
        if row.series is None and other.name.startswith(REFERENCE):
            same = same and group_of(other).name == group_of(row).name
        agent = base_of(other.series.method) == "memagent" if other.series else None
        if same and (agent if agent is not None else other.name.startswith(REFERENCE)):
            return other
    return None


def _panel(ax: Axes, accuracy: Grid, ratios: Mapping[tuple[str, str], float]) -> None:
    rows, columns = accuracy.seen("ours")
    table, text = [], []
    for row in rows:
        places = [(row.name, column.label) for column in columns]
        table.append([ratios.get(place, math.nan) for place in places])
        found = [accuracy.ours.get(place) for place in places]
        text.append([f"{o.value:.1f} {accuracy.marks(o)}".rstrip() if o else "" for o in found])
    highest = max([value for line in table for value in line if value == value], default=2.0)
    sns.heatmap(
        np.nan_to_num(np.array(table), nan=0.0), ax=ax, annot=np.array(text), fmt="",
        cmap="YlGnBu", vmin=0.0, vmax=min(max(2.0, highest), MOST), annot_kws={"fontsize": 7.5},
        linewidths=0.6, linecolor="white", mask=np.array([[not t for t in line] for line in text]),
        xticklabels=[column.label for column in columns],
        yticklabels=[row.label for row in rows], cbar_kws={"pad": 0.01, "aspect": 12},
    )  # fmt: skip
    legible(ax, (np.array(text) != "").ravel())
    ax.set_facecolor("#f3f4f6")
    ax.tick_params(length=0, labelsize=7.5, colors=INK, rotation=0)
    ax.set_title(accuracy.title, loc="left", fontsize=9, color=INK, pad=5)
    ax.set_xlabel("context length in tokens", fontsize=7.5, color=GREY)
    bar = ax.collections[0].colorbar
    if bar is not None:
        bar.ax.tick_params(labelsize=6.5, length=2, colors=GREY)
        bar.outline.set_visible(False)
        bar.set_label(f"speed-up (times, {MOST:g} and more alike)", fontsize=7, color=GREY)
    blocks(ax, rows)
