"""The heatmap of a run: per task, series down and lengths across, the accuracy in each square."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from reports.figures.curves import panel_title, whose
from reports.figures.style import GREY, INK, Rendered, foot, head, new_figure, render
from reports.labels import Look, length_label, percent
from reports.run.data import Point, RunData


def heatmap_figure(run: RunData, profile: str) -> Rendered:
    """Per task, series down and lengths across, the accuracy in each square."""
    style = run.looks()
    columns = 2 if len(run.lengths) <= 8 and len(run.panels) > 1 else 1
    rows = -(-len(run.panels) // columns)
    figure = new_figure(0.95 + rows * (0.72 + 0.3 * len(style)))
    grid = figure.add_gridspec(rows, columns)
    for place, task in enumerate(run.panels):
        ax = figure.add_subplot(grid[place // columns, place % columns])
        named = place % columns == 0
        _heatmap_panel(ax, run, task, profile, list(style.values()) if named else [])
    head(figure, "Accuracy in per cent" + whose(run))
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
    ax.set_title(
        panel_title(run, task), loc="left", fontsize=9.5, color=INK, pad=6, fontweight=weight
    )
    for row, series in enumerate(run.all_series):
        points = {p.length: p for p in run.line(task, series, profile)}
        for column, length in enumerate(run.lengths):
            square(ax, column, row, points.get(length))
    names = [s.label for s in styles] or [""] * len(run.all_series)
    squares_axes(ax, run.lengths, names)


def squares_axes(ax: Axes, lengths: Sequence[int], rows: Sequence[str]) -> None:
    """Axes without lines, for a square at each length (across) and named row (down)."""
    ax.set_xlim(-0.5, len(lengths) - 0.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xticks(range(len(lengths)), [length_label(n) for n in lengths])
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0, labelsize=8, colors=INK)
    for spine in ax.spines.values():
        spine.set_visible(False)


def square(ax: Axes, column: int, row: int, point: Point | None) -> None:
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
