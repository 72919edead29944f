"""What a sample costs against length: the cost figure, and turns by task."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports.figures.curves import whose
from reports.figures.panels import task_panels
from reports.figures.style import (
    Rendered,
    dress,
    foot,
    head,
    length_axis,
    limits_of,
    new_figure,
    render,
)
from reports.labels import Series, compact
from reports.run.data import RunData
from reports.run.matching import how_timed


def cost_figure(run: RunData) -> Rendered:
    """What a sample takes against length: prompt tokens, requests, and their seconds. Over
    the tasks that a mean is taken of, so that every series is measured on the same."""
    figure = new_figure(2.9 + 0.2 * -(-len(run.all_series) // 3))
    style = run.looks()
    panels = (
        ("Prompt tokens per sample", "prompt_tokens"),
        ("Turns per sample", "turns"),
        ("Request seconds per sample", "seconds"),
    )
    for place, (title, name) in enumerate(panels):
        ax = figure.add_subplot(1, 3, place + 1)
        dress(ax, title)
        for series in run.all_series:
            _line(ax, run, series, _mean_cost(run, series, name))
        length_axis(ax, run.lengths, limits_of(run.lengths), room=6)
        log_amounts(ax)
    head(figure, "Cost of one sample" + whose(run), list(style.values()))
    foot(
        figure,
        "Context length in tokens; both scales are logarithmic. Seconds: "
        f"{how_timed(run.sessions)}.\nMeans over the samples that ended well, {_which(run)}.",
    )
    return render(
        figure,
        "cost",
        "Cost of one sample against length",
        "Prompt tokens, turns and request seconds per sample against context length.",
    )


def _which(run: RunData) -> str:
    """The tasks that the figure is of."""
    some = run.mean_tasks and len(run.mean_tasks) < len(run.tasks)
    return f"of {', '.join(run.mean_tasks)}" if some else "of all tasks"


def _mean_cost(run: RunData, series: Series, name: str) -> list[tuple[int, float]]:
    """(length, mean cost) over the tasks' samples that ended well."""
    points = []
    for length in run.lengths:
        found = [run.find(task, series, length) for task in run.mean_tasks or run.tasks]
        cells = [cell for cell in found if cell is not None and cell.ok]
        total = sum(cell.ok for cell in cells)
        if total:
            mean = sum(getattr(cell.cost, name) * cell.ok for cell in cells) / total
            points.append((length, mean))
    return points


def turns_figure(run: RunData) -> Rendered | None:
    """Turns per sample against length, task by task; None where no rollout ended early, since
    turns then follow from the length alone."""
    if not any(cell.counts.get("exited") for cell in run.cells):
        return None
    tasks = [task for task in run.tasks if any(c.ok for c in run.cells if c.task == task)]
    most = max(cell.cost.turns for cell in run.cells if cell.ok)
    figure, axes = task_panels(tasks, 1.9)
    for ax, task in zip(axes, tasks, strict=True):
        for series in run.series_of(task):
            found = [run.find(task, series, length) for length in run.lengths]
            points = [(cell.length, cell.cost.turns) for cell in found if cell and cell.ok]
            _line(ax, run, series, points)
        length_axis(ax, run.lengths, limits_of(run.lengths), room=6)
        ax.set_ylim(0.8, 1.3 * most)
        log_amounts(ax)
    head(figure, "Turns per sample, by task" + whose(run), list(run.looks().values()))
    foot(
        figure,
        "Context length in tokens; both scales are logarithmic. Means over the samples that ended "
        "well. An exit gate ends the reading early.",
    )
    return render(
        figure,
        "turns",
        "Turns per sample by task",
        "Turns per sample against context length, a panel a task.",
    )


def _line(ax: Axes, run: RunData, series: Series, points: Sequence[tuple[int, float]]) -> None:
    """A line of costs. Costs of several series are often equal: each is thinner than the one
    below it, so that all can be seen."""
    if not points:  # an empty line makes the layout fail
        return
    every = run.all_series
    look = run.looks()[series]
    above = 1 - (every.index(series) + 1) / len(every)  # share of the lines above it
    ax.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
        markersize=4.0 + 4.0 * above,
        linewidth=1.5 + 3.5 * above,
        clip_on=False,
        zorder=3,
    )


def log_amounts(ax: Axes) -> None:
    """A log scale up, of what is drawn: two ticks at least are labelled."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    steps = (1,) if high > 100 * low else (1, 2, 5) if high > 5 * low else range(1, 10)
    ax.yaxis.set_major_locator(LogLocator(subs=[float(step) for step in steps]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
