"""What an answer costs, beside how often it is right: turns, chunks and seconds a sample."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from reports.labels import Series
from reports.run.data import CellStats, RunData


@dataclass(frozen=True, slots=True)
class EfficiencyRow:
    """A task and series across all lengths; None where nothing has ended well yet."""

    task: str
    series: Series
    cells: tuple[CellStats | None, ...]


def efficiency_rows(run: RunData) -> list[EfficiencyRow]:
    """A row a task and series that has it, in the order of the plan."""
    rows = []
    for task in run.tasks:
        for series in run.series_of(task):
            found = [run.find(task, series, length) for length in run.lengths]
            ended = tuple(cell if cell and cell.ok else None for cell in found)
            if any(ended):
                rows.append(EfficiencyRow(task, series, ended))
    return rows


def efficiency_frame(run: RunData, reference: Series) -> pd.DataFrame:
    """One row a cell: its accuracy (shares of 1, both profiles) and what a sample took, as
    means over those that ended well; each also as a ratio to the reference's same cell."""
    rows = []
    for cell in run.cells:
        if not cell.ok:
            continue
        other = run.find(cell.task, reference, cell.length)
        strict, published = cell.score("strict"), cell.score("published")
        row: dict[str, object] = {
            "task": cell.task,
            "length": cell.length,
            "method": cell.series.method,
            "model": cell.series.model,
            "samples": cell.ok,
            "strict": strict.mean if strict else None,
            "published": published.mean if published else None,
        }
        for name in ("turns", "chunks", "prompt_tokens", "completion_tokens", "seconds"):
            ours = getattr(cell.cost, name)
            theirs = getattr(other.cost, name) if other and other.ok else 0.0
            row[name] = ours
            row[f"{name}_to_reference"] = ours / theirs if theirs else None
        rows.append(row)
    return pd.DataFrame(rows)
