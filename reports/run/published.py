"""The papers' numbers, and which of ours stand beside them (see reports/run/matching.py)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import DataMissing
from reports.labels import Series
from reports.run.data import CellStats, RunData
from reports.run.matching import Placed, in_plan_order, meaning_of
from reports.statistics.intervals import Estimate

PUBLISHED_CSV = Path(__file__).resolve().parents[2] / "results" / "published" / "published.csv"
ACCURACY = "accuracy_pct"
UNITS = {"K": (1_000, 1_024), "M": (1_000_000, 1_048_576)}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published number. `value` is in the unit that `metric` names (per cent, seconds)."""

    source: str
    exhibit: str
    task: str
    metric: str
    model: str
    length: str
    value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published number, the cell of ours that meets it, and that cell's mean (a share of 1)."""

    row: PublishedRow
    placed: Placed
    ours: Estimate

    @property
    def cell(self) -> CellStats:
        """What was measured."""
        return self.placed.cell

    @property
    def difference(self) -> float:
        """Ours minus theirs, in percentage points."""
        return 100 * self.ours.mean - self.row.value


def read_published(path: Path = PUBLISHED_CSV) -> list[PublishedRow]:
    """All published rows, in the file's order.

    Raises:
        DataMissing: the file is not there.
    """
    if not path.is_file():
        raise DataMissing(
            f"{path}: the published numbers are not there. They are part of the repository: "
            "`git checkout results/published` puts them back."
        )
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return [
            PublishedRow(
                *(row["source"], row["exhibit"], row["task"], row["metric"], row["model"]),
                *(row["length"], float(row["value"])),
            )
            for row in rows
        ]


def lengths_of(label: str) -> tuple[int, ...]:
    """The token counts that a published length label stands for, the decimal one first;
    none for a label that is no single length (`native`, `avg 7K-896K`)."""
    try:
        number = float(label[:-1])
    except ValueError:
        return ()
    return tuple(round(number * unit) for unit in UNITS.get(label[-1], ()))


def compare(run: RunData, rows: Sequence[PublishedRow]) -> list[Comparison]:
    """Every published accuracy that a cell of the run meets, in the order of the plan."""
    printed: dict[tuple[str, str, str], list[PublishedRow]] = {}
    for row in rows:
        if row.metric == ACCURACY:
            printed.setdefault((row.model, row.task, row.length), []).append(row)
    found = []
    for one in in_plan_order(run):
        score = one.cell.score("published")
        if one.model is not None and score is not None:
            beside = printed.get((one.model, one.task, one.length), ())
            found += [Comparison(row, one, score) for row in beside]
    return found


def by_cell(comparisons: Sequence[Comparison]) -> list[tuple[Comparison, ...]]:
    """Comparisons of the same cell together, one for each exhibit that prints it."""
    groups: dict[tuple[str, int, Series], list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault((c.cell.task, c.cell.length, c.cell.series), []).append(c)
    return [tuple(group) for group in groups.values()]


def references(run: RunData, rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """The published accuracies of the run's tasks, whatever the model and the length."""
    meanings = map(meaning_of, run.tasks)
    tasks = {meaning.published for meaning in meanings if meaning is not None}
    return [row for row in rows if row.task in tasks and row.metric == ACCURACY]
