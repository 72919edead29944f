"""Numbers of an exhibit: models down, lengths (or tasks) across, published beside ours.

The two are never mixed: each square holds a published number, one of ours, or both apart, and
their difference only where both are the same mean of the same places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from core.errors import UsageError
from core.names import base_of
from reports.labels import Series
from reports.run.data import CellStats, RunData
from reports.run.matching import Placed, how_timed, place_cells
from reports.run.published import PublishedRow
from reports.statistics.intervals import Estimate, average
from reports.tables.smallest import of_unpaired

Measure = Literal["accuracy", "seconds", "flops"]
View = Literal["published", "ours", "difference"]

UNITS: Mapping[Measure, str] = {
    "accuracy": "accuracy in per cent",
    "seconds": "seconds a sample",
    "flops": "floating point operations",
}
METRICS: Mapping[Measure, tuple[str, ...]] = {
    "accuracy": ("accuracy_pct", "recall_pct", "score_pct"),
    "seconds": ("seconds",),
    "flops": (),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the published task and length label that it shows, and the tasks and lengths
    that the mean in it is of. `tokens` is its place on a length axis."""

    label: str
    task: str
    length: str
    tasks: tuple[str, ...]
    lengths: tuple[str, ...]
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a published model, or (`series`) one of a run that has no published counterpart, of
    a method called `method`."""

    name: str
    label: str
    series: Series | None = None
    method: str = ""


@dataclass(frozen=True, slots=True)
class Ours:
    """A measured number in the grid's unit with its 95% interval (none for seconds).
    `independent`: its samples, those that share a document or a question counted once.
    `comparable`: it is the mean of all that the published number is the mean of."""

    value: float
    low: float
    high: float
    samples: int
    independent: int
    partial: bool
    deviations: tuple[str, ...]
    comparable: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers of one panel. `exhibits` name the published tables that it takes, `profile`
    and `metric` the score of ours (None: the task's primary one). Of models of ours those of
    `own_methods` have a row (empty: all), and lengths of ours a column with `own_lengths`."""

    title: str
    measure: Measure
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    exhibits: tuple[str, ...] = ()
    profile: str = "published"
    metric: str | None = None
    own_lengths: bool = True
    own_methods: tuple[str, ...] = ()
    published: Mapping[tuple[str, str], float] = field(default_factory=dict)
    ours: Mapping[tuple[str, str], Ours] = field(default_factory=dict)
    timed: str = ""

    @property
    def unit(self) -> str:
        """What the numbers are, for axes and captions."""
        return UNITS[self.measure]

    @property
    def views(self) -> tuple[View, ...]:
        """What there is to show."""
        numbers: dict[View, object] = {
            "published": self.published,
            "ours": self.ours,
            "difference": self.differences,
        }
        return tuple(view for view, found in numbers.items() if found)

    @property
    def differences(self) -> Mapping[tuple[str, str], float]:
        """Ours less the published number, where the two are the same mean."""
        return {
            place: ours.value - self.published[place]
            for place, ours in self.ours.items()
            if place in self.published and ours.comparable
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Every deviation of ours, once, in the order of the rows: a, b, c, ..."""
        return tuple(dict.fromkeys(d for o in self.in_order() for d in o.deviations))

    def in_order(self) -> list[Ours]:
        """Ours, row by row."""
        places = [(row.name, column.label) for row in self.rows for column in self.columns]
        return [self.ours[place] for place in places if place in self.ours]

    @property
    def smallest(self) -> str:
        """The smallest difference that ours can show, as a sentence; empty without accuracies."""
        if self.measure != "accuracy":
            return ""
        return of_unpaired({ours.independent for ours in self.ours.values()})

    def marks(self, ours: Ours) -> str:
        """The letters of its deviations: `ac`."""
        return "".join(letter(self.notes.index(text)) for text in ours.deviations)

    def text(self, view: View, value: float, decimals: int = 2) -> str:
        """A number of a view as tables print it."""
        if self.measure == "flops":
            return f"{value:.3e}"
        sign = "+" if view == "difference" else ""
        return f"{value:{sign}.{decimals}f}".replace("-", "−")

    def values(self, view: View) -> Mapping[tuple[str, str], float]:
        """The numbers of a view."""
        if view == "ours":
            return {place: ours.value for place, ours in self.ours.items()}
        return self.published if view == "published" else self.differences

    def seen(self, view: View) -> tuple[tuple[Row, ...], tuple[Column, ...]]:
        """The rows and columns that a view has a number in."""
        values = self.values(view)
        names, labels = {row for row, _ in values}, {column for _, column in values}
        return (
            tuple(row for row in self.rows if row.name in names),
            tuple(column for column in self.columns if column.label in labels),
        )


def letter(place: int) -> str:
    """0 -> a, 25 -> z, 26 -> aa."""
    return chr(97 + place) if place < 26 else letter(place // 26 - 1) + letter(place % 26)


def filled(grid: Grid, rows: Sequence[PublishedRow], run: RunData | None) -> Grid:
    """The grid with the published numbers among `rows`, and those of a run."""
    grid = replace(grid, published=_published(grid, rows))
    if run is None:
        return grid
    placed = place_cells(run)
    grid = _with_own_lengths(grid, placed) if grid.own_lengths else grid
    known = {row.name for row in grid.rows}
    index: dict[tuple[str, str, str], Placed] = {}
    own: dict[str, Row] = {}
    style = run.looks()
    for one in placed:
        name = one.model if one.model in known else None
        if name is None:
            series = one.cell.series
            if grid.own_methods and base_of(series.method) not in grid.own_methods:
                continue
            label = style[series].label
            name = f"ours: {label}"
            own.setdefault(name, Row(name, label, series, run.method_label(series.method)))
        if one.cell.finished:
            index.setdefault((name, one.task, one.length), one)
    order = {f"ours: {look.label}": place for place, look in enumerate(style.values())}
    extra = sorted(own.values(), key=lambda row: order[row.name])
    every = (*grid.rows, *extra)
    ours = {
        (row.name, column.label): number
        for row in every
        for column in grid.columns
        if (number := _ours(grid, index, row.name, column)) is not None
    }
    used = {name for name, _ in ours}
    kept = tuple(row for row in every if row in grid.rows or row.name in used)
    timed = how_timed(run.sessions) if grid.measure == "seconds" else ""
    return replace(grid, rows=kept, ours=ours, timed=timed)


def _published(grid: Grid, rows: Sequence[PublishedRow]) -> dict[tuple[str, str], float]:
    places = {(column.task, column.length): column.label for column in grid.columns}
    names = {row.name for row in grid.rows}
    return {
        (row.model, places[row.task, row.length]): row.value
        for row in rows
        if row.exhibit in grid.exhibits
        and row.metric in METRICS[grid.measure]
        and row.model in names
        and (row.task, row.length) in places
    }


def _with_own_lengths(grid: Grid, placed: Sequence[Placed]) -> Grid:
    """The grid with a column for each further length at which the run has one of its tasks."""
    tasks = {task for column in grid.columns for task in column.tasks}
    columns = {column.label: column for column in grid.columns}
    first = grid.columns[0]
    for one in placed:
        if one.task in tasks and one.length not in columns and one.cell.finished:
            columns[one.length] = Column(
                one.length, first.task, one.length, first.tasks, (one.length,), one.cell.length
            )
    ordered = sorted(columns.values(), key=lambda column: column.tokens or 0)
    return replace(grid, columns=tuple(ordered))


def _ours(
    grid: Grid, index: Mapping[tuple[str, str, str], Placed], row: str, column: Column
) -> Ours | None:
    wanted = [(task, length) for task in column.tasks for length in column.lengths]
    found = [index[row, *place] for place in wanted if (row, *place) in index]
    if not found:
        return None
    deviations = list(dict.fromkeys(d for one in found for d in one.deviations))
    whole = len(found) == len(wanted)
    if not whole:
        deviations.append(_which(column, found))
    cells = [one.cell for one in found]
    value, low, high = _mean(grid, cells)
    if math.isnan(value):
        return None
    return Ours(
        *(value, low, high),
        samples=sum(cell.finished for cell in cells),
        independent=sum(cell.independent for cell in cells),
        partial=any(cell.owed for cell in cells),
        deviations=tuple(deviations),
        comparable=whole,
    )


def _which(column: Column, found: Sequence[Placed]) -> str:
    """What a mean is of, where it is not of all that the published one is."""
    tasks = list(dict.fromkeys(one.task for one in found))
    lengths = list(dict.fromkeys(sorted((one.cell.length, one.length) for one in found)))
    said = []
    if len(column.tasks) > 1 and len(tasks) < len(column.tasks):
        said.append(f"mean of {len(tasks)} of {len(column.tasks)} tasks ({', '.join(tasks)})")
    labels = [label for _, label in lengths]
    if len(column.lengths) > 1 and len(labels) < len(column.lengths):
        said.append(f"mean of {len(labels)} of {len(column.lengths)} lengths ({', '.join(labels)})")
    return "; ".join(said) or f"mean of {len(found)} cells"


def _mean(grid: Grid, cells: Sequence[CellStats]) -> tuple[float, float, float]:
    """Unweighted: every task and every length counts the same."""
    if grid.measure == "seconds":
        value = math.fsum(cell.cost.seconds for cell in cells) / len(cells)
        return value, math.nan, math.nan
    found = average([_score(grid, cell) for cell in cells])
    return 100 * found.mean, 100 * found.low, 100 * found.high


def _score(grid: Grid, cell: CellStats) -> Estimate:
    scores = cell.scores.get(grid.profile) or {}
    metric = grid.metric or cell.metric
    if metric not in scores:
        raise UsageError(
            f"{cell.task} at {cell.length}: no {grid.profile} score {metric!r}, got "
            f"{', '.join(scores) or 'none'}. Score the run again with this version."
        )
    return scores[metric]
