"""The figures of a run: accuracy against length, heatmaps, cost, and the papers' curves.

Each function draws one figure from numbers and touches no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reports.data import Point, RunData
from reports.labels import Look, Series, compact, length_label, looks, percent
from reports.style import (
    GREY,
    INK,
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

PERCENT = FuncFormatter(lambda value, _: f"{value:.0f}%")
MOST_DIRECT_LABELS = 4
LONGEST_DIRECT_LABEL = 16
MOST_BANDS = 4


# -- accuracy ------------------------------------------------------------------------------


def accuracy_figure(run: RunData, profile: str) -> Rendered:
    """Accuracy against length: the mean of all tasks, and a small multiple a task."""
    figure = new_figure(_height(len(run.tasks)))
    style = looks(run.all_series)
    longest = max(len(look.label) for look in style.values())
    direct = len(style) <= MOST_DIRECT_LABELS and longest <= LONGEST_DIRECT_LABEL
    axes = _panels(figure, len(run.tasks))
    titles = ["Mean of all tasks", *run.tasks] if len(run.tasks) > 1 else run.tasks
    panels: list[str | None] = [None, *run.tasks] if len(run.tasks) > 1 else [*run.tasks]
    for place, (ax, title, task) in enumerate(zip(axes, titles, panels, strict=True)):
        dress(ax, title, bold=place == 0)
        ends = [_accuracy_line(ax, run, task, s, profile, style[s]) for s in run.all_series]
        _accuracy_axes(ax, run, task, wide=place == 0)
        if place == 0 and direct:
            _direct_labels(ax, [e for e in ends if e is not None])
    legend = [] if direct else list(style.values())
    head(figure, "Accuracy against context length" + _whose(run), legend)
    foot(figure, _accuracy_foot(run, profile))
    return render(
        figure,
        f"accuracy_{profile}",
        f"Accuracy against length, {profile} scoring",
        f"Accuracy in per cent against context length in tokens for "
        f"{', '.join(look.label for look in style.values())}, {profile} scoring.",
    )


def _height(tasks: int) -> float:
    if tasks <= 4:
        return 4.3 if tasks != 3 else 4.9
    return 5.0 if tasks <= 6 else 1.0 + 1.9 * -(-(tasks + 1) // 4)


def _panels(figure: Figure, tasks: int) -> list[Axes]:
    """One axes a panel, the average first and, up to six tasks, larger than the others."""
    if tasks == 1:
        return [figure.subplots()]
    if tasks > 6:
        rows = -(-(tasks + 1) // 4)
        grid = figure.add_gridspec(rows, 4)
        return [figure.add_subplot(grid[i // 4, i % 4]) for i in range(tasks + 1)]
    rows = {2: 2, 3: 3, 4: 2}.get(tasks, 3)
    columns = -(-tasks // rows)
    ratios = [1.75 if columns == 1 else 2.1] + [1.0] * columns
    grid = figure.add_gridspec(rows, 1 + columns, width_ratios=ratios)
    small = [figure.add_subplot(grid[i // columns, 1 + i % columns]) for i in range(tasks)]
    return [figure.add_subplot(grid[:, 0]), *small]


def _accuracy_line(
    ax: Axes, run: RunData, task: str | None, series: Series, profile: str, look: Look
) -> tuple[Point, Look] | None:
    points = run.line(task, series, profile)
    if not points:
        return None
    x = [p.length for p in points]
    y = [100 * p.value.mean for p in points]
    low = [100 * p.value.low for p in points]
    high = [100 * p.value.high for p in points]
    if len(run.all_series) <= MOST_BANDS:
        ax.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
    else:
        ax.vlines(x, low, high, color=look.colour, alpha=0.35, linewidth=1.0)
    ax.plot(x, y, color=look.colour, linestyle=look.dash, linewidth=1.9, clip_on=False, zorder=3)
    for point, value in zip(points, y, strict=True):
        ax.plot(
            *(point.length, value),
            look.marker,
            markersize=4.6,
            zorder=4,
            clip_on=False,
            markeredgecolor=look.colour,
            markeredgewidth=1.3,
            markerfacecolor="white" if point.partial else look.colour,
        )
    return points[-1], look


def _accuracy_axes(ax: Axes, run: RunData, task: str | None, wide: bool) -> None:
    lengths = sorted({c.length for c in run.cells if task in (None, c.task)})
    length_axis(ax, lengths, limits_of(run.lengths), room=11 if wide else 6)
    ax.set_ylim(-3, 103)
    ax.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100] if wide else [0, 50, 100]))
    ax.yaxis.set_major_formatter(PERCENT)
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


def _whose(run: RunData) -> str:
    models = {series.model for series in run.all_series}
    return f" · {models.pop()}" if len(models) == 1 else ""


def _accuracy_foot(run: RunData, profile: str) -> str:
    sizes = sorted({cell.samples for cell in run.cells})
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    spread_word = "Bands" if len(run.all_series) <= MOST_BANDS else "Bars"
    text = (
        f"Context length in tokens, log scale. {spread_word}: 95% intervals. {count} samples per "
        f"task and length; a failed sample counts as 0. Scoring: {profile}."
    )
    if _windows(run):
        text += f"\nDashed: {_window_text(run)}; full context beyond it is cut in the middle."
    if any(cell.owed for cell in run.cells):
        text += "\nHollow markers: not all samples are finished yet."
    return text


def _window_text(run: RunData) -> str:
    """Which window each dashed line is; models are named where there are several."""
    models = list(dict.fromkeys(series.model for series in run.all_series))
    if len(models) == 1:
        return f"the model's window of {_windows(run)[0]:,} tokens"
    owners = {w: [m for m in models if run.model(m).get("window") == w] for w in _windows(run)}
    return "window of " + "; ".join(f"{', '.join(m)}: {w:,} tokens" for w, m in owners.items())


# -- heatmap -------------------------------------------------------------------------------


def heatmap_figure(run: RunData, profile: str) -> Rendered:
    """Per task, series down and lengths across, the accuracy in each square."""
    style = looks(run.all_series)
    tasks: list[str | None] = [None, *run.tasks] if len(run.tasks) > 1 else [*run.tasks]
    columns = 2 if len(run.lengths) <= 8 and len(tasks) > 1 else 1
    rows = -(-len(tasks) // columns)
    figure = new_figure(0.95 + rows * (0.72 + 0.3 * len(style)))
    grid = figure.add_gridspec(rows, columns)
    for place, task in enumerate(tasks):
        ax = figure.add_subplot(grid[place // columns, place % columns])
        named = place % columns == 0
        _heatmap_panel(ax, run, task, profile, list(style.values()) if named else [])
    head(figure, "Accuracy in per cent" + _whose(run))
    note = f"Context length in tokens. Scoring: {profile}; a failed sample counts as 0."
    if any(cell.owed for cell in run.cells):
        note += " Hatched: not all samples are finished yet."
    foot(figure, note)
    return render(
        figure,
        f"heatmap_{profile}",
        f"Accuracy a cell, {profile} scoring",
        f"One heatmap a task: methods and models by lengths, {profile} scoring.",
    )


def _heatmap_panel(
    ax: Axes, run: RunData, task: str | None, profile: str, styles: Sequence[Look]
) -> None:
    weight = "normal" if task else "bold"
    title = task or "Mean of all tasks"
    ax.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6, fontweight=weight)
    for row, series in enumerate(run.all_series):
        points = {p.length: p for p in run.line(task, series, profile)}
        for column, length in enumerate(run.lengths):
            _square(ax, column, row, points.get(length))
    ax.set_xlim(-0.5, len(run.lengths) - 0.5)
    ax.set_ylim(len(run.all_series) - 0.5, -0.5)
    ax.set_xticks(range(len(run.lengths)), [length_label(n) for n in run.lengths])
    ax.set_yticks(
        range(len(run.all_series)), [s.label for s in styles] or [""] * len(run.all_series)
    )
    ax.tick_params(length=0, labelsize=8, colors=INK)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _square(ax: Axes, column: int, row: int, point: Point | None) -> None:
    """One cell. Empty where there is no number (yet); hatched where it may still move."""
    corner = column - 0.48, row - 0.46
    if point is None:
        ax.add_patch(_rectangle(corner, "#f3f4f6"))
        ax.text(column, row, "–", ha="center", va="center", fontsize=8, color=GREY)
        return
    share = point.value.mean
    shade = _shade(share)
    ax.add_patch(_rectangle(corner, shade, hatched=point.partial))
    ax.text(
        *(column, row, percent(share)),
        ha="center",
        va="center",
        fontsize=8.5,
        color="white" if share > 0.55 else INK,
        # Hatching must not run through the digits.
        path_effects=[withStroke(linewidth=4, foreground=shade)] if point.partial else None,
    )


def _rectangle(corner: tuple[float, float], colour: str, hatched: bool = False) -> Rectangle:
    return Rectangle(
        corner,
        0.96,
        0.92,
        facecolor=colour,
        linewidth=0,
        edgecolor="#8b98a5",
        hatch="////" if hatched else None,
    )


def _shade(share: float) -> str:
    """White to blue, one hue, darker is better: readable in grey and by colour-blind eyes."""
    pale, full = (0xE9, 0xF1, 0xF8), (0x08, 0x45, 0x82)
    mixed = [round(a + (b - a) * share) for a, b in zip(pale, full, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


# -- cost ----------------------------------------------------------------------------------


def cost_figure(run: RunData) -> Rendered:
    """What a sample takes against length: prompt tokens, requests, and their seconds."""
    figure = new_figure(3.3)
    style = looks(run.all_series)
    panels = (
        ("Prompt tokens per sample", "prompt_tokens"),
        ("Turns per sample", "turns"),
        ("Request seconds per sample", "seconds"),
    )
    for place, (title, name) in enumerate(panels):
        ax = figure.add_subplot(1, 3, place + 1)
        dress(ax, title)
        for series in run.all_series:
            x, y = _mean_cost(run, series, name)
            look = style[series]
            ax.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dash,
                marker=look.marker,
                markersize=4.5,
                linewidth=1.8,
                clip_on=False,
                zorder=3,
            )
        length_axis(ax, run.lengths, limits_of(run.lengths), room=6)
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    head(figure, "Cost of one sample" + _whose(run), list(style.values()))
    foot(
        figure,
        "Context length in tokens; both scales are logarithmic. Means over the samples of "
        "all tasks that ended well. Seconds: waiting in the server's queue included.",
    )
    return render(
        figure,
        "cost",
        "Cost of one sample against length",
        "Prompt tokens, turns and request seconds per sample against context length.",
    )


def _mean_cost(run: RunData, series: Series, name: str) -> tuple[list[int], list[float]]:
    """Lengths and the mean of a cost over all tasks' samples that ended well."""
    x, y = [], []
    for length in run.lengths:
        cells = [c for c in run.cells if (c.length, c.series) == (length, series) and c.ok]
        total = sum(cell.ok for cell in cells)
        if total:
            x.append(length)
            y.append(sum(getattr(cell.cost, name) * cell.ok for cell in cells) / total)
    return x, y
