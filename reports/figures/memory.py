"""The size of a memory against the turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from reports.causes.survey import Survey
from reports.figures.curves import whose
from reports.figures.panels import task_panels
from reports.figures.style import GREY, Rendered, foot, head, render
from reports.labels import Look, length_label
from reports.run.data import RunData


def memory_figure(run: RunData, survey: Survey) -> Rendered | None:
    """Tokens of the memory after each turn, a panel a task at its pictured length; None where
    no memory is known."""
    panels: dict[tuple[str, int], dict[str, Sequence[Sequence[float]]]] = {}
    style = run.looks()
    for one in survey.pictured:
        if one.memory_tokens:
            panel = panels.setdefault((one.cell.task, one.cell.length), {})
            panel[style[one.series].label] = one.memory_tokens
    if not panels:
        return None
    by_label = {look.label: look for look in style.values()}
    titles = [f"{task} at {length_label(length)}" for task, length in panels]
    figure, axes = task_panels(titles, 2.1)
    for ax, sizes in zip(axes, panels.values(), strict=True):
        memory_lines(ax, sizes, by_label)
        ax.set_ylim(0, None)
        ax.set_xlabel("turn", fontsize=8, color=GREY)
    shown = {label for sizes in panels.values() for label in sizes}
    legend = [look for look in style.values() if look.label in shown]
    head(figure, "Memory in tokens after each turn" + whose(run), legend)
    foot(
        figure,
        "Lines: mean over the samples still reading at that turn; bands: the middle 80% of them. A "
        "memory that is part of a reply has the reply's tokens by its share of the characters.",
    )
    return render(
        figure,
        "memory",
        "Memory in tokens against the turn",
        "Mean tokens of the memory after each turn, with the middle 80% of samples as a band.",
    )


def memory_lines(
    ax: Axes, sizes: Mapping[str, Sequence[Sequence[float]]], style: Mapping[str, Look]
) -> None:
    """One line a series: the mean over its samples of the memory's tokens after each turn, with
    the middle 80% of samples as a band. `sizes`: series -> sample -> turn."""
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
