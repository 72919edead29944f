"""The size of a memory against the turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.exhibits.drawing.page import dress, new_sheet, print_in, small_print, title
from reports.figures.style import GREY
from reports.labels import Look


def memory_figure(
    name: str,
    sizes: Mapping[str, Sequence[Sequence[float]]],
    style: Mapping[str, Look],
    limits: Mapping[str, int],
    below: Sequence[str],
) -> Figure:
    """One line a series: the mean over its samples of the memory's tokens after each turn, with
    the middle 80% of samples as a band. `sizes`: series -> sample -> turn; `limits`: what the
    budget of a reply allows."""
    figure = new_sheet(3.3 + print_in(below))
    ax = figure.subplots()
    dress(ax, "")
    for series, samples in sizes.items():
        look = style[series]
        longest = max(map(len, samples))
        table = np.full((len(samples), longest), np.nan)
        for number, one in enumerate(samples):
            table[number, : len(one)] = one
        turns = np.arange(1, longest + 1)
        low, high = np.nanquantile(table, (0.1, 0.9), axis=0)
        ax.fill_between(turns, low, high, color=look.colour, alpha=0.15, linewidth=0)
        ax.plot(
            turns, np.nanmean(table, axis=0), color=look.colour, linestyle=look.dash,
            marker=look.marker if longest <= 30 else "", markersize=4, linewidth=1.5,
        )  # fmt: skip
    most = ax.get_ylim()[1]
    for limit in sorted(set(limits.values())):
        if limit <= 1.6 * most:
            ax.axhline(limit, color=GREY, linestyle=(0, (4, 3)), linewidth=0.9)
            ax.annotate(
                f"limit of a reply: {limit:,}", (1.0, limit), xycoords=("axes fraction", "data"),
                xytext=(-2, 2), textcoords="offset points", ha="right", fontsize=7, color=GREY,
            )  # fmt: skip
    ax.set_ylim(0, None)
    ax.set_ylabel("memory in tokens")
    ax.set_xlabel("turn")
    keys = [
        Line2D([], [], color=style[s].colour, linestyle=style[s].dash, linewidth=1.5, label=s)
        for s in sizes
    ]
    title(figure, name, keys, 3)
    small_print(figure, below)
    return figure
