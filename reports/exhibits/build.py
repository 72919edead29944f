"""Exhibits that are a grid of numbers: from a description as data to what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from reports.exhibits.drawing.curves import LengthAxis, curves
from reports.exhibits.drawing.heatmap import heatmap
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.grid import Column, Grid, Measure, filled
from reports.exhibits.models import looks_of
from reports.run.published import lengths_of

Picture = Callable[[Material, Sequence[Grid]], Mapping[str, Figure | None]]


def at_lengths(task: str, labels: Sequence[str], tasks: Sequence[str] = ()) -> tuple[Column, ...]:
    """A column a length, of one task, or of the mean of several that is published as `task`."""
    return tuple(
        Column(label, task, label, tuple(tasks) or (task,), (label,), lengths_of(label)[0])
        for label in labels
    )


def over_lengths(
    names: Mapping[str, str], published_length: str, lengths: Mapping[str, Sequence[str]]
) -> tuple[Column, ...]:
    """A column a task (published name -> label), each the mean over its lengths."""
    return tuple(
        Column(label, task, published_length, (task,), tuple(lengths[task]))
        for task, label in names.items()
    )


def both_measures(grid: Grid, what: str = "") -> tuple[Grid, Grid]:
    """The grid for accuracy and the same for seconds."""

    def of(measure: Measure) -> Grid:
        title = f"{what}, {measure}" if what else measure.capitalize()
        return replace(grid, measure=measure, title=title)

    return of("accuracy"), of("seconds")


def fill_all(grids: Sequence[Grid], material: Material) -> tuple[Grid, ...]:
    """The grids with all numbers that the material holds; those without any are left out."""
    every = (filled(grid, material.printed, material.run) for grid in grids)
    return tuple(grid for grid in every if grid.views)


def as_heatmap(name: str, below: Sequence[str] = (), decimals: int = 2) -> Picture:
    """One heatmap a grid and view."""
    return lambda _, grids: {"": heatmap(name, grids, below, decimals)}


def as_curves(name: str, axis: LengthAxis, below: Sequence[str] = ()) -> Picture:
    """Lines against length."""

    def picture(material: Material, grids: Sequence[Grid]) -> Mapping[str, Figure | None]:
        rows = {row.name: row for grid in grids for row in grid.rows}
        style = looks_of(list(rows.values()), material.run)
        return {"": curves(name, grids, style, axis, below)}

    return picture


def of_grids(
    name: str, title: str, shows: str, source: str, grids: Sequence[Grid], picture: Picture
) -> Exhibit:
    """An exhibit of one or several grids, drawn by `picture`."""

    def draw(material: Material) -> Drawn | None:
        found = fill_all(grids, material)
        if not found:
            return None
        drawn = picture(material, found)
        return Drawn({end: figure for end, figure in drawn.items() if figure}, found)

    return Exhibit(name, title, shows, source, any(grid.exhibits for grid in grids), draw)
