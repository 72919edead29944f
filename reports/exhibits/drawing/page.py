"""What the pictures of all exhibits share: the sheet, and the words around their panels."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.exhibits.grid import Grid, View, letter
from reports.figures.style import GREY, PRINT, few_colours, foot, head_of, new_figure, printed
from reports.figures.style import dress as plain_axes

HEADINGS: Mapping[View, str] = {
    "published": "Published",
    "ours": "Measured here",
    "difference": "Difference, measured less published",
}


def new_sheet(height_in: float) -> Figure:
    """An empty white figure of text width."""
    return new_figure(height_in, PRINT)


def rendered(figure: Figure, forms: Sequence[str]) -> dict[str, bytes]:
    """The picture in each form (png, pdf, svg) as a file's content. Same numbers, same bytes."""
    found = printed(figure, forms)
    return found | {"png": few_colours(found["png"])} if "png" in found else found


def title(figure: Figure, text: str, legend: Sequence[Artist] = (), columns: int = 4) -> None:
    """The bold line over the whole sheet, at the left, and below it a legend."""
    head_of(figure, text, legend, columns, PRINT)


def legend_in(rows: int) -> float:
    """The height of a legend."""
    return 0.17 * rows


def print_in(lines: Sequence[str]) -> float:
    """The height of the small print."""
    return 0.135 * sum(len(textwrap.wrap(line, PRINT.foot_chars)) for line in lines) + 0.1


def small_print(figure: Figure, lines: Sequence[str]) -> None:
    """The lines under the whole sheet, at the left, broken where they are long."""
    if lines:
        foot(figure, "\n".join(lines), PRINT)


def dress(axes: Axes, heading: str) -> None:
    """Plain axes: a heading at the left, horizontal grid lines, no box."""
    plain_axes(axes, heading, sheet=PRINT)
    axes.xaxis.label.set(fontsize=8, color=GREY)
    axes.yaxis.label.set(fontsize=8, color=GREY)


def heading(grid: Grid, view: View) -> str:
    """What stands over a panel: the part of the exhibit, and whose numbers it shows."""
    name = HEADINGS[view] if grid.measure != "flops" else "From the published formula"
    if view == "difference":
        name += " (points)" if grid.measure == "accuracy" else " (seconds)"
    return f"{grid.title} · {name}" if grid.title else name


def unit_of(grid: Grid, view: View) -> str:
    """What an axis of a view's numbers says."""
    if view != "difference":
        return grid.unit
    return "difference in " + ("points" if grid.measure == "accuracy" else "seconds")


def notes(grids: Sequence[Grid], lettered: bool = True) -> list[str]:
    """Small print that the numbers need: what ours differ in, and how seconds were measured.
    `lettered`: the picture has the letters of deviations beside its numbers; lines and bars have
    none, and the tables say which number each is of."""
    said = []
    for grid in grids:
        named = f" ({grid.title})" if len(grids) > 1 and grid.title else ""
        if grid.notes and lettered:
            marked = [f"{letter(place)} {text}" for place, text in enumerate(grid.notes)]
            said.append(f"Letters{named}: {'; '.join(marked)}.")
        elif grid.notes:
            said.append(f"Some of ours differ{named}, see the table: {'; '.join(grid.notes)}.")
        if grid.smallest:
            said.append(grid.smallest)
        if grid.timed and grid.ours:
            said.append(f"Seconds of ours: requests of a sample added up, {grid.timed}.")
    return list(dict.fromkeys(said))
