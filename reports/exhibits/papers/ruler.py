"""RULER's own table (arXiv:2404.06654): effective length, mean, and means weighted by length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.exhibits.build import at_lengths
from reports.exhibits.drawing.heatmap import Beside, heatmap
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.grid import Grid, Row, filled
from reports.exhibits.tables import csv_of
from reports.labels import length_label
from reports.run.data import RunData
from reports.tables.markup import (
    latex_escape,
    latex_line,
    latex_table,
    markdown_escape,
    markdown_table,
)

PAPER = "RULER (Hsieh et al. 2024), arXiv:2404.06654"
TITLE = "RULER: effective length"
LABELS = ("4K", "8K", "16K", "32K", "64K", "128K")
TASKS = (
    *("niah_single_1", "niah_single_2", "niah_single_3"),
    *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    *("niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2"),
)
THRESHOLD = 85.6
"""Per cent: what Llama-2-7B has at 4K."""

BELOW = (
    "Scores as RULER counts: string match on the whole reply, mean of its 13 tasks. Claimed: the "
    f"model's window. Effective: the longest length with at least {THRESHOLD}. Weighted means: "
    "weights 1, 2, ... rising with the length (to long) or falling (to short)."
)
NONE = "–"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table. `scores`: length in tokens -> per cent, lengths ascending, of those that
    have all 13 tasks."""

    model: str
    claimed: int | None
    scores: Mapping[int, float]

    @property
    def effective(self) -> int | None:
        """The longest length with a score of the threshold, None if there is no such one."""
        return max((n for n, score in self.scores.items() if score >= THRESHOLD), default=None)

    @property
    def mean(self) -> float:
        """Every length counts the same."""
        return weighted([*self.scores.values()], [1.0] * len(self.scores))

    @property
    def to_long(self) -> float:
        """Weights that rise linearly with the place of the length."""
        return weighted([*self.scores.values()], range(1, len(self.scores) + 1))

    @property
    def to_short(self) -> float:
        """Weights that fall linearly with it."""
        return weighted([*self.scores.values()], range(len(self.scores), 0, -1))


def weighted(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean, NaN of nothing."""
    if not scores:
        return math.nan
    total = math.fsum(weight * score for weight, score in zip(weights, scores, strict=True))
    return total / math.fsum(weights)


def table_line(grid: Grid, row: Row, run: RunData) -> Line:
    """The row of a series, from the lengths at which it has all 13 tasks."""
    places = [(column.tokens or 0, (row.name, column.label)) for column in grid.columns]
    scores = {
        tokens: grid.ours[place].value
        for tokens, place in places
        if place in grid.ours and grid.ours[place].comparable
    }
    window = run.model(row.series.model).get("window") if row.series else None
    return Line(row.label, window, scores)


def _draw(material: Material) -> Drawn | None:
    run = material.run
    if run is None or not any("ruler" in cell.scores for cell in run.cells):
        return None
    scored = replace(run, cells=tuple(cell for cell in run.cells if "ruler" in cell.scores))
    base = Grid(
        *("", "accuracy", (), at_lengths("ruler_13", LABELS, TASKS)),
        profile="ruler",
        metric="string_match",
    )
    grid = _without_form(filled(base, (), scored))
    if not grid.ours:
        return None
    lines = {row.name: table_line(grid, row, run) for row in grid.seen("ours")[0]}
    beside = Beside(HEADS, {name: _summary(line) for name, line in lines.items()})
    figure = heatmap(TITLE, [grid], [BELOW, *_without(lines.values())], 1, beside)
    table = [*lines.values()]
    texts = {
        "-lengths.csv": _csv(table),
        "-lengths.md": _markdown(table),
        "-lengths.tex": _latex(table),
    }
    return Drawn({"": figure} if figure else {}, (grid,), texts)


def _without_form(grid: Grid) -> Grid:
    """RULER's own form is no deviation here; only what a mean is of is told."""
    ours = {
        place: replace(number, deviations=tuple(t for t in number.deviations if "mean of" in t))
        for place, number in grid.ours.items()
    }
    return replace(grid, ours=ours)


def _without(lines: Iterable[Line]) -> list[str]:
    """Says of which models there is nothing to sum up."""
    every = [*lines]
    without = [line.model for line in every if not line.scores]
    if not without:
        return []
    whose = "" if len(without) == len(every) else f" of {'; '.join(without)}"
    return [f"No length{whose} has all {len(TASKS)} tasks, which the last columns need."]


HEADS = ("claimed", "effective", "mean", "to long", "to short")


def _summary(line: Line) -> list[str]:
    claimed = NONE if line.claimed is None else length_label(line.claimed)
    means = [_number(value) for value in (line.mean, line.to_long, line.to_short)]
    return [claimed, _effective(line), *means]


def _effective(line: Line) -> str:
    if line.effective is not None:
        return length_label(line.effective)
    return f"<{length_label(min(line.scores))}" if line.scores else NONE


def _number(value: float) -> str:
    return f"{value:.1f}" if value == value else NONE


def _csv(lines: Sequence[Line]) -> str:
    lengths = _lengths(lines)
    return csv_of(
        {
            "model": line.model,
            "claimed": line.claimed,
            "effective": line.effective,
            **{f"score_{tokens}": line.scores.get(tokens) for tokens in lengths},
            "mean": line.mean,
            "weighted_to_long": line.to_long,
            "weighted_to_short": line.to_short,
        }
        for line in lines
    )


def _lengths(lines: Sequence[Line]) -> list[int]:
    return sorted({tokens for line in lines for tokens in line.scores})


def _table(lines: Sequence[Line]) -> list[list[str]]:
    """The table as printed, its head first: scores between the two lengths and the means."""
    lengths = _lengths(lines)
    head = ["model", *HEADS[:2], *map(length_label, lengths), *HEADS[2:]]
    rows = []
    for line in lines:
        claimed, effective, *means = _summary(line)
        scores = [_number(line.scores.get(tokens, math.nan)) for tokens in lengths]
        rows.append([line.model, claimed, effective, *scores, *means])
    return [head, *rows]


def _markdown(lines: Sequence[Line]) -> str:
    head, *rows = _table(lines)
    table = markdown_table(head, [[markdown_escape(cell) for cell in row] for row in rows])
    return f"{table}\n\n{BELOW}\n"


def _latex(lines: Sequence[Line]) -> str:
    head, *rows = _table(lines)
    body = [latex_line([latex_escape(cell) for cell in row]) for row in rows]
    return latex_table(head, body, latex_escape(f"{TITLE}. {BELOW}"))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "ruler-table",
        TITLE,
        "mean of 13 tasks at 4K to 128K, effective length, means weighted to long and short",
        PAPER,
        False,
        _draw,
    ),
)
