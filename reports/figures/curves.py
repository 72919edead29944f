"""The figure of a run: accuracy against length, one panel a task and one for their mean.

It is drawn from numbers and touches no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter

from reports.figures.panels import broken
from reports.figures.style import (
    GREY,
    Rendered,
    dress,
    foot,
    head,
    length_axis,
    limits_of,
    new_figure,
    render,
    spread,
)
from reports.labels import Look, Series, percent, span
from reports.run.data import CellStats, Point, RunData

PERCENT = FuncFormatter(lambda value, _: f"{value:.0f}%")
MOST_DIRECT_LABELS = 4
LONGEST_DIRECT_LABEL = 16
MOST_BANDS = 4
MOST_SMALL = 6
"""Tasks that stand as small panels beside the large one of their mean."""
TITLE_CHARS = 22
"""What the narrowest panel's title can hold a line."""


def accuracy_figure(run: RunData, profile: str) -> Rendered:
    """Accuracy against length: the mean of all tasks, and a small multiple a task."""
    figure = new_figure(_height(run))
    style = run.looks()
    longest = max(len(look.label) for look in style.values())
    direct = len(style) <= MOST_DIRECT_LABELS and longest <= LONGEST_DIRECT_LABEL
    for place, (ax, task) in enumerate(zip(_panels(figure, run), run.panels, strict=True)):
        title = panel_title(run, task)
        dress(ax, title if len(run.panels) == 1 else broken(title, TITLE_CHARS), bold=place == 0)
        ends = [_accuracy_line(ax, run, task, s, profile, style[s]) for s in run.all_series]
        _accuracy_axes(ax, run, task, wide=place == 0)
        if place == 0 and direct:
            _direct_labels(ax, [e for e in ends if e is not None])
    legend = [] if direct else list(style.values())
    head(figure, "Accuracy against context length" + whose(run), legend)
    foot(figure, _accuracy_foot(run, profile))
    return render(
        figure,
        f"accuracy_{profile}",
        f"Accuracy against length, {profile} scoring",
        f"Accuracy in per cent against context length in tokens for "
        f"{', '.join(look.label for look in style.values())}, {profile} scoring.",
    )


def _height(run: RunData) -> float:
    panels = len(run.panels)
    if panels == 1 or (run.mean_tasks and panels <= 1 + MOST_SMALL):
        return {4: 4.9, 6: 5.5, 7: 5.5}.get(panels, 4.3)
    return 1.0 + 1.9 * -(-panels // 4)


def _panels(figure: Figure, run: RunData) -> list[Axes]:
    """One axes a panel; the mean comes first and, beside up to MOST_SMALL tasks, larger."""
    panels = len(run.panels)
    if panels == 1:
        return [figure.subplots()]
    if not run.mean_tasks or panels > 1 + MOST_SMALL:
        grid = figure.add_gridspec(-(-panels // 4), 4)
        return [figure.add_subplot(grid[i // 4, i % 4]) for i in range(panels)]
    tasks = panels - 1
    rows = {2: 2, 3: 3, 4: 2}.get(tasks, 3)
    columns = -(-tasks // rows)
    ratios = [1.75 if columns == 1 else 2.1] + [1.0] * columns
    grid = figure.add_gridspec(rows, 1 + columns, width_ratios=ratios)
    small = [figure.add_subplot(grid[i // columns, 1 + i % columns]) for i in range(tasks)]
    return [figure.add_subplot(grid[:, 0]), *small]


def panel_title(run: RunData, task: str | None) -> str:
    """What stands over the panel of a task, or of the mean (None)."""
    label = run.task_label(task)
    return label if task else label.capitalize()


def _accuracy_line(
    ax: Axes, run: RunData, task: str | None, series: Series, profile: str, look: Look
) -> tuple[Point, Look] | None:
    points = run.line(task, series, profile)
    if not points:
        return None
    shift = _shift(run, series)
    x = [p.length * shift for p in points]
    y = [100 * p.value.mean for p in points]
    low = [100 * p.value.low for p in points]
    high = [100 * p.value.high for p in points]
    if len(run.all_series) <= MOST_BANDS:
        ax.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
    else:
        ax.vlines(x, low, high, color=look.colour, alpha=0.35, linewidth=1.0)
    ax.plot(
        *(x, y),
        color=look.colour,
        linestyle=look.dash,
        linewidth=1.7,
        clip_on=False,
        zorder=3,
        path_effects=[withStroke(linewidth=2.9, foreground="white")],  # where lines cross
    )
    for partial, face in ((False, look.colour), (True, "white")):
        shown = [place for place, point in enumerate(points) if point.partial == partial]
        if shown:  # an empty line makes the layout fail
            ax.plot(
                *([x[place] for place in shown], [y[place] for place in shown]),
                look.marker,
                markersize=4.6,
                zorder=4,
                clip_on=False,
                markeredgecolor=look.colour,
                markeredgewidth=1.3,
                markerfacecolor=face,
            )
    return points[-1], look


def _shift(run: RunData, series: Series) -> float:
    """The factor by which many series stand side by side at a length, so that their bars and
    markers do not cover each other: all within a quarter of the least step between lengths."""
    every, lengths = run.all_series, run.lengths
    if len(every) <= MOST_BANDS or len(lengths) < 2:
        return 1.0
    step = min(long / short for short, long in pairwise(lengths))
    return float(step ** (0.25 * (every.index(series) / (len(every) - 1) - 0.5)))


def _accuracy_axes(ax: Axes, run: RunData, task: str | None, wide: bool) -> None:
    lengths = sorted({c.length for c in run.cells if task in (None, c.task)})
    length_axis(ax, lengths, limits_of(run.lengths), room=11 if wide else 6)
    ax.set_ylim(-3, 103)
    ax.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100] if wide else [0, 50, 100]))
    ax.yaxis.set_major_formatter(PERCENT)
    if (trained := run.training_length) is not None:
        ax.axvline(trained, color=GREY, linewidth=0.8, zorder=1)
        if wide:
            ax.annotate(
                f"trained at {trained:,}",
                (trained, 0.04),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                rotation=90,
                fontsize=7.5,
                color=GREY,
                va="bottom",
            )
    windows = _windows(run)
    for window in windows:
        ax.axvline(window, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        if wide and len({series.model for series in run.all_series}) == 1:
            ax.annotate(
                f"window\n{window:,}",
                (window, 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=7.5,
                color=GREY,
                va="bottom",
            )


def _windows(run: RunData) -> list[int]:
    """Windows of the run's models that lie inside the figure."""
    low, high = limits_of(run.lengths)
    found = {run.model(series.model).get("window") for series in run.all_series}
    return sorted(w for w in found if isinstance(w, int) and low < w < high)


def _direct_labels(ax: Axes, ends: Sequence[tuple[Point, Look]]) -> None:
    """Names at the right ends of the lines, moved apart where they would touch."""
    places = spread([100 * p.value.mean for p, _ in ends], gap=15, low=3, high=97)
    for (point, look), place in zip(ends, places, strict=True):
        ax.annotate(
            f"{look.label}\n{percent(point.value.mean)}%",
            (point.length, place),
            xytext=(9, 0),
            textcoords="offset points",
            color=look.colour,
            fontsize=9,
            fontweight="bold",
            va="center",
            linespacing=1.25,
            annotation_clip=False,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def whose(run: RunData) -> str:
    """The end of a figure's title: the model, where there is only one."""
    models = {series.model for series in run.all_series}
    return f" · {models.pop()}" if len(models) == 1 else ""


def looks_of(run: RunData, panels: Mapping[str, Collection[Series]]) -> list[Look]:
    """The legend of the series that are in any panel; none where a run has one series alone."""
    there = {series for panel in panels.values() for series in panel}
    looks = run.looks()
    several = len(run.all_series) > 1
    return [looks[series] for series in run.all_series if several and series in there]


def count_line(cells: Sequence[CellStats]) -> str:
    """How many samples a cell has, and draws of each, where they are more: `128 samples`."""
    draws = [cell.draws for cell in cells]
    samples = f"{span(cell.samples for cell in cells)} samples"
    return f"{samples} of {span(draws)} draws" if max(draws) > 1 else samples


def _accuracy_foot(run: RunData, profile: str) -> str:
    count = count_line(run.cells)
    spread_word = "Bands" if len(run.all_series) <= MOST_BANDS else "Bars"
    text = (
        f"Context length in tokens, log scale. {spread_word}: 95% intervals. {count} per "
        f"task and length; a failed sample counts as 0. Scoring: {profile}."
    )
    lines = []
    if _windows(run):
        lines.append(f"Dashed: {_window_text(run)}; full context beyond it is cut in the middle.")
    if run.training_length is not None:
        lines.append(f"Thin line: trained at {run.training_length:,} tokens.")
    more = []
    if run.mean_tasks and len(run.mean_tasks) < len(run.tasks):
        more.append(f"Mean: of the tasks that all lines have, {', '.join(run.mean_tasks)}.")
    if any(cell.owed for cell in run.cells):
        more.append("Hollow markers: not all samples are finished yet.")
    return "\n".join([text, *filter(None, (" ".join(lines), " ".join(more)))])


def _window_text(run: RunData) -> str:
    """Which window each dashed line is; models are named where there are several."""
    models = list(dict.fromkeys(series.model for series in run.all_series))
    if len(models) == 1:
        return f"the model's window of {_windows(run)[0]:,} tokens"
    owners = {w: [m for m in models if run.model(m).get("window") == w] for w in _windows(run)}
    return "window of " + "; ".join(f"{', '.join(m)}: {w:,} tokens" for w, m in owners.items())
