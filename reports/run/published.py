"""The papers' numbers, and which of ours may stand beside them.

A published row matches a cell of ours when all of these hold:

- the task is the same. `ruler_hqa_files` (MemAgent's own files), `ruler_hqa_kept` and
  `ruler_hqa_published` (its numbers of documents, 50 for 7K doubling up to 25,600 for 3.5M) and
  `ruler_hqa` (documents up to the length) all stand for the papers' `ruler_hqa`. Of settings in a
  name only those that make a cell as published count; other variants (`..._noise`) match nothing;
- the model's entry in the settings names it (`published_name`, without `(w EG)`), and the method
  is the one that the row was measured with: GRU-Mem's rows `gru_mem`, w/o EG with
  `@exit_gate=false`, MemAgent's rows `memagent`, all others `full_context`;
- the length label stands for our length: `7K` for 7,000 or 7 x 1,024 tokens, `1.75M` for
  1,750,000 or 1.75 x 1,048,576. Nothing in between matches;
- the row is an accuracy; ours is then the `published` profile's.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.methods import METHODS, described
from core.errors import DataMissing
from reports.labels import MethodLook, methods_of
from reports.run.data import RunData
from reports.statistics.intervals import Estimate

PUBLISHED_CSV = Path(__file__).resolve().parents[2] / "results" / "published" / "published.csv"
ACCURACY = "accuracy_pct"
TASK_NAMES = {
    "ruler_hqa_published": "ruler_hqa",
    "ruler_hqa_files": "ruler_hqa",
    "ruler_hqa_kept": "ruler_hqa",
    "ruler_hqa_kept_early20": "ruler_hqa_early20",
    "ruler_hqa_kept_early10": "ruler_hqa_early10",
}
"""Our name -> the papers', where they differ."""
AS_PUBLISHED = {"published=true", "whole_corpus_at_most=true", "questions=eval_50.json"}
"""Settings in a task's name that make its cells those of the papers."""
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
    """A number of ours beside the published one, both as shares of 1."""

    row: PublishedRow
    task: str
    length: int
    model: str
    method: str
    ours: Estimate
    partial: bool

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


def published_task(task: str) -> str:
    """The papers' name of a task of ours; the task's own where its settings make it another."""
    base, _, settings = task.partition("@")
    if settings and not {*settings.split(",")} <= AS_PUBLISHED:
        return task
    return TASK_NAMES.get(base, base)


def published_model(model: str) -> str:
    """A row's model without the method's variant: `GRU-Mem-7B (w EG)` -> `GRU-Mem-7B`."""
    return model.partition(" (")[0]


def method_of(model: str) -> str:
    """The method that a published model name was measured with."""
    if "GRU-Mem" in model:
        return "gru_mem@exit_gate=false" if "w/o EG" in model else "gru_mem"
    return "memagent" if "MemAgent" in model else "full_context"


def published_methods() -> dict[str, MethodLook]:
    """The methods that published models were measured with."""
    return methods_of({"methods": {name: described(name) for name in METHODS}})


def compare(run: RunData, rows: Sequence[PublishedRow]) -> list[Comparison]:
    """Every published accuracy that a cell of the run matches, in the order of the plan."""
    by_name: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        if row.metric == ACCURACY:
            by_name.setdefault((row.task, published_model(row.model)), []).append(row)
    found = []
    for cell in run.cells:
        name = run.model(cell.series.model).get("published_name")
        score = cell.score("published")
        if not name or score is None:
            continue
        for row in by_name.get((published_task(cell.task), name), ()):
            if method_of(row.model) == cell.series.method and cell.length in lengths_of(row.length):
                place = cell.task, cell.length, cell.series.model, cell.series.method
                found.append(Comparison(row, *place, score, cell.owed > 0))
    return found


def by_cell(comparisons: Sequence[Comparison]) -> list[tuple[Comparison, ...]]:
    """Comparisons of the same cell together, one for each exhibit that prints it."""
    groups: dict[tuple[str, int, str, str], list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault((c.task, c.length, c.model, c.method), []).append(c)
    return [tuple(group) for group in groups.values()]


def references(run: RunData, rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """The published accuracies of the run's tasks, whatever the model and the length."""
    tasks = {published_task(task) for task in run.tasks}
    return [row for row in rows if row.task in tasks and row.metric == ACCURACY]
