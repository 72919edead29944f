"""The decay of a memory with length: measured, and as its errors a turn would have it."""

from __future__ import annotations

from collections import defaultdict

from matplotlib.axes import Axes

from core.arithmetic.intervals import wilson
from reports.causes.decay import FactsKept, expected
from reports.causes.survey import Survey
from reports.figures.curves import looks_of, whose
from reports.figures.panels import task_panels
from reports.figures.style import (
    GREY,
    Rendered,
    foot,
    head,
    length_axis,
    limits_of,
    render,
)
from reports.labels import Look, Series
from reports.run.data import RunData

Line = dict[int, FactsKept]
"""Length -> what became of the facts there."""


def decay_figure(run: RunData, survey: Survey) -> Rendered | None:
    """The share of the facts read that the last memory holds against length, a panel a task; None
    where nobody tells a memory at two lengths."""
    tasks = _by_task(run, survey)
    if not tasks:
        return None
    figure, axes = task_panels(list(tasks), 2.4)
    style = run.looks()
    for ax, lines in zip(axes, tasks.values(), strict=True):
        lengths = sorted({length for line in lines.values() for length in line})
        for series, line in lines.items():
            _line(ax, style[series], line)
        length_axis(ax, lengths, limits_of(lengths), room=6)
        ax.set_ylim(0, 1.04)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        ax.set_xlabel("context length in tokens", fontsize=8, color=GREY)
        ax.legend(loc="lower left", fontsize=7, frameon=True, framealpha=0.85, edgecolor="none")
    names = looks_of(run, tasks)
    head(figure, "Facts in the last memory, and errors a turn" + whose(run), names)
    foot(
        figure,
        "Points: share of the facts read whole that the last memory holds word for word, with 95% "
        "intervals. Lines: stored x (1 - lost a turn)^turns, with the rates of the task's other "
        "lengths. Where points lie on their line, one error a turn explains the decay with length. "
        "Guessed facts are left out; facts of one sample count as independent.",
    )
    return render(
        figure,
        "decay",
        "Facts in the last memory against length, measured and by errors a turn",
        "Share of read facts held by the last memory against context length in tokens, beside "
        "what the errors a turn at the other lengths give, a panel a task.",
    )


def _by_task(run: RunData, survey: Survey) -> dict[str, dict[Series, Line]]:
    """Task (those at several depths as one) -> series -> its line, where it has two lengths."""
    found: dict[str, dict[Series, Line]] = defaultdict(lambda: defaultdict(dict))
    for cell, kept in zip(survey.cells, survey.kept, strict=True):
        if kept.read:
            line = found[run.over_depths(cell.cell.task)][cell.series]
            length = cell.cell.length
            line[length] = line.get(length, FactsKept()) + kept
    several = {
        task: {series: line for series, line in lines.items() if len(line) > 1}
        for task, lines in found.items()
    }
    return {task: lines for task, lines in several.items() if lines}


def _line(ax: Axes, look: Look, line: Line) -> None:
    lengths = sorted(line)
    shares = [line[length].held / line[length].read for length in lengths]
    limits = [wilson(s, line[n].read) for s, n in zip(shares, lengths, strict=True)]
    known = sum(line.values(), FactsKept())
    lost = f"{100 * known.lost / known.turns:.2g}% lost a turn" if known.turns else "no turn after"
    ax.vlines(lengths, *zip(*limits, strict=True), color=look.colour, alpha=0.4, linewidth=1.2)
    ax.plot(
        *(lengths, shares),
        "o",
        color=look.colour,
        markersize=4.5,
        clip_on=False,
        label=f"{100 * known.stored / known.read:.0f}% stored, {lost}",
    )
    drawn = [
        (length, share)
        for length in lengths
        if (share := expected(line[length], [line[n] for n in lengths if n != length])) is not None
    ]
    if drawn:
        ax.plot(*zip(*drawn, strict=True), color=look.colour, linestyle=look.dash, linewidth=1.4)
