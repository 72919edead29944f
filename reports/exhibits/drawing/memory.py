"""The size of a memory against the turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from matplotlib.figure import Figure

from reports.exhibits.drawing.page import dress, new_sheet, print_in, small_print, title
from reports.figures.memory import memory_lines
from reports.figures.style import GREY, key_of
from reports.labels import Look


def memory_figure(
    name: str,
    sizes: Mapping[str, Sequence[Sequence[float]]],
    style: Mapping[str, Look],
    limits: Collection[int],
    below: Sequence[str],
) -> Figure:
    """One line a series, see `memory_lines`. `limits`: what the budgets of replies allow."""
    figure = new_sheet(3.3 + print_in(below))
    ax = figure.subplots()
    dress(ax, "")
    memory_lines(ax, sizes, style)
    most = ax.get_ylim()[1]
    for limit in sorted(limits):
        if limit <= 1.6 * most:
            ax.axhline(limit, color=GREY, linestyle=(0, (4, 3)), linewidth=0.9)
            ax.annotate(
                f"limit of a reply: {limit:,}", (1.0, limit), xycoords=("axes fraction", "data"),
                xytext=(-2, 2), textcoords="offset points", ha="right", fontsize=7, color=GREY,
            )  # fmt: skip
    ax.set_ylim(0, None)
    ax.set_ylabel("memory in tokens")
    ax.set_xlabel("turn")
    title(figure, name, [key_of(style[series]) for series in sizes], 3)
    small_print(figure, below)
    return figure
