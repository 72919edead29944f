"""The heatmap of a run: per task, series down and lengths across, the accuracy in each square."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from reports.figures.curves import panel_title, whose
from reports.figures.panels import broken, further_lines_in
from reports.figures.style import GREY, INK, Rendered, foot, head, new_figure, render
from reports.labels import Look, Series, length_label, percent
from reports.run.data import Point, RunData

EMPTY = "#f3f4f6"
TITLE_CHARS = 36
"""What the title of one of two panels side by side can hold a line."""


def heatmap_figure(run: RunData, profile: str) -> Rendered:
    """Per task, series down and lengths across, the accuracy in each square."""
    style = run.looks()
    columns = 2 if len(run.lengths) <= 8 and len(run.panels) > 1 else 1
    rows = -(-len(run.panels) // columns)
    titles = [panel_title(run, task) for task in run.panels]
    if columns > 1:
        titles = [broken(title, TITLE_CHARS) for title in titles]
    over = 0.72 + further_lines_in(titles)
    figure = new_figure(0.95 + rows * (over + 0.3 * len(style)))
    grid = figure.add_gridspec(rows, columns)
    for place, (task, title) in enumerate(zip(run.panels, titles, strict=True)):
        ax = figure.add_subplot(grid[place // columns, place % columns])
        weight = "normal" if task else "bold"
        ax.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6, fontweight=weight)
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
    squares(ax, [points_at(run, task, series, run.lengths, profile) for series in run.all_series])
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


def points_at(
    run: RunData, task: str | None, series: Series, lengths: Sequence[int], profile: str
) -> list[Point | None]:
    """The point of a series at each length, None where it has none."""
    points = {point.length: point for point in run.line(task, series, profile)}
    return [points.get(length) for length in lengths]


def squares(ax: Axes, rows: Sequence[Sequence[Point | None]]) -> None:
    """A square a number, rows down. Empty where there is no number (yet); hatched where it may
    still move. All squares of a kind are one artist: thousands of them would be slow."""
    places = [(column, row, p) for row, line in enumerate(rows) for column, p in enumerate(line)]
    for partial in (False, True):
        kind = [place for place in places if (place[2] is not None and place[2].partial) == partial]
        patches = [
            Rectangle(
                *((column - 0.48, row - 0.46), 0.96, 0.92),
                facecolor=_shade(point.value.mean) if point else EMPTY,
                edgecolor="#8b98a5",
                linewidth=0,
            )
            for column, row, point in kind
        ]
        hatch = "////" if partial else None
        ax.add_collection(PatchCollection(patches, match_original=True, hatch=hatch))
    for column, row, point in places:
        _number(ax, column, row, point)


def _number(ax: Axes, column: int, row: int, point: Point | None) -> None:
    share = point.value.mean if point else 0.0
    # Hatching must not run through the digits.
    halo = withStroke(linewidth=4, foreground=_shade(share))
    ax.text(
        *(column, row, percent(share) if point else "–"),
        ha="center",
        va="center",
        fontsize=8.5 if point else 8,
        color=GREY if point is None else "white" if share > 0.55 else INK,
        path_effects=[halo] if point and point.partial else None,
        in_layout=False,  # inside its square: measuring thousands would take most of the time
    )


def _shade(share: float) -> str:
    """White to blue, one hue, darker is better: readable in grey and by colour-blind eyes."""
    pale, full = (0xE9, 0xF1, 0xF8), (0x08, 0x45, 0x82)
    mixed = [round(a + (b - a) * share) for a, b in zip(pale, full, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)
