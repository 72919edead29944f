"""RULER's own table (arXiv:2404.06654): effective length, mean, and means weighted by length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from reports.exhibits.build import at_lengths
from reports.exhibits.drawing.heatmap import heatmap
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.grid import Grid, Row, filled
from reports.labels import length_label
from reports.run.data import RunData
from reports.tables.accuracy import latex_escape, markdown_escape

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
    f"Scores as RULER counts: string match on the whole reply, mean of its 13 tasks. Effective: "
    f"the longest length with at least {THRESHOLD}. Weighted means: weights 1, 2, ... rising with "
    "the length (long) or falling (short)."
)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: lengths in tokens, scores in per cent. `effective` None: below the
    threshold at every length."""

    model: str
    claimed: int | None
    effective: int | None
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Every length counts the same."""
        return weighted(self.scores, [1.0] * len(self.scores))

    @property
    def to_long(self) -> float:
        """Weights that rise linearly with the place of the length."""
        return weighted(self.scores, range(1, len(self.scores) + 1))

    @property
    def to_short(self) -> float:
        """Weights that fall linearly with it."""
        return weighted(self.scores, range(len(self.scores), 0, -1))


def weighted(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean, NaN of nothing."""
    if not scores:
        return math.nan
    total = math.fsum(weight * score for weight, score in zip(weights, scores, strict=True))
    return total / math.fsum(weights)


def table_line(grid: Grid, row: Row, run: RunData) -> Line:
    """The row of a series, from the lengths at which it has all 13 tasks."""
    places = [(column.tokens or 0, (row.name, column.label)) for column in grid.columns]
    found = [
        (tokens, grid.ours[place].value)
        for tokens, place in places
        if place in grid.ours and grid.ours[place].comparable
    ]
    passed = [length for length, score in found if score >= THRESHOLD]
    window = run.model(row.series.model).get("window") if row.series else None
    scores = tuple(score for _, score in found)
    return Line(row.label, window, max(passed) if passed else None, scores)


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
    lines = [table_line(grid, row, run) for row in grid.seen("ours")[0]]
    figure = heatmap(TITLE, [grid], [BELOW, *_sentences(lines)], decimals=1)
    texts = {"-lengths.csv": _csv(lines), "-lengths.md": _markdown(lines)}
    return Drawn({"": figure} if figure else {}, (grid,), texts | {"-lengths.tex": _latex(lines)})


def _without_form(grid: Grid) -> Grid:
    """RULER's own form is no deviation here; only what a mean is of is told."""
    ours = {
        place: replace(number, deviations=tuple(t for t in number.deviations if "mean of" in t))
        for place, number in grid.ours.items()
    }
    return replace(grid, ours=ours)


def _sentences(lines: Sequence[Line]) -> list[str]:
    """One a model, and one for all that have no length with all tasks."""
    said = [
        f"{line.model}: effective {_tokens(line.effective, f'below {THRESHOLD} everywhere')}, "
        f"mean {line.mean:.1f}, to long {line.to_long:.1f}, to short {line.to_short:.1f}."
        for line in lines
        if line.scores
    ]
    without = [line.model for line in lines if not line.scores]
    return (
        [*said, f"No length has all {len(TASKS)} tasks: {'; '.join(without)}."] if without else said
    )


def _tokens(length: int | None, none: str) -> str:
    return none if length is None else length_label(length)


def _frame(lines: Sequence[Line]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": line.model,
                "claimed": line.claimed,
                "effective": line.effective,
                "mean": line.mean,
                "weighted_to_long": line.to_long,
                "weighted_to_short": line.to_short,
            }
            for line in lines
        ]
    )


def _csv(lines: Sequence[Line]) -> str:
    text: str = _frame(lines).to_csv(index=False, lineterminator="\n")
    return text


def _cells(line: Line) -> list[str]:
    means = [
        f"{value:.1f}" if value == value else "–"
        for value in (line.mean, line.to_long, line.to_short)
    ]
    return [_tokens(line.claimed, "–"), _tokens(line.effective, "–"), *means]


HEADER = ("model", "claimed", "effective", "mean", "to long", "to short")


def _markdown(lines: Sequence[Line]) -> str:
    rows = [HEADER, ("---", *["---:"] * 5)]
    rows += [(markdown_escape(line.model), *_cells(line)) for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{BELOW}\n"


def _latex(lines: Sequence[Line]) -> str:
    body = [
        " & ".join([latex_escape(line.model), *_cells(line)]).replace("–", "--") + r" \\"
        for line in lines
    ]
    return "\n".join(
        [
            *(r"% needs \usepackage{booktabs}", r"\begin{tabular}{lrrrrr}", r"\toprule"),
            *(" & ".join(HEADER) + r" \\", r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", ""),
        ]
    )


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
