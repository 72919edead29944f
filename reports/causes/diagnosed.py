"""Every finished sample of a run, or of several, with its turns and its diagnosis.

Samples pass one at a time, so memory is that of the largest sample, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ledger import primary_metrics
from benchmarks.store import Cell
from core.types import Turn
from reports.causes.cause import Diagnosis, diagnose, is_failure
from reports.run.exported import key_of, open_run, row_key
from reports.run.merged import merged_settings
from tasks.scoring import SUB_EM


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A finished sample: its cell (`number` in `Runs.places`), its row of the store, its turns, and
    where it lost what."""

    number: int
    cell: Cell
    row: Mapping[str, Any]
    turns: tuple[Turn, ...]
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is: number `run` of the runs, and the cell as that run has it."""

    run: int
    cell: Cell


class Runs:
    """One run, or several that are shown as one, with their samples diagnosed. Every method opens
    what it reads anew, and only reads: a sweep may be writing, and any thread may ask."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises:
        UsageError: there is no run, or two of them do not go together.
        """
        self.paths = tuple(paths)
        with ExitStack() as stack:
            sources = [stack.enter_context(open_run(path)) for path in self.paths]
            each = [source.settings() or {} for source in sources]
            self.sessions = [source.sessions() for source in sources]
            self.places = [
                Place(run, cell) for run, source in enumerate(sources) for cell in source.cells()
            ]
        self.each = each
        self.settings = merged_settings(dict(zip(map(str, self.paths), each, strict=True)))
        self.metrics = primary_metrics(self.settings)

    def diagnosed(
        self,
        numbers: Collection[int],
        indices: Collection[int] | None = None,
        *,
        only_failures_turns: bool = False,
    ) -> Iterator[Diagnosed]:
        """The finished samples of some cells (numbers in `places`), or those of them that `indices`
        numbers (see `rollout_of`). What is right lost nothing, so that its turns need not be read
        to say so: `only_failures_turns`.

        Raises:
            StoreError: a sample that ended well has no score.
        """
        for run, path in enumerate(self.paths):
            own = {p.cell.id: n for n, p in enumerate(self.places) if p.run == run}
            wanted = [cell for cell, number in own.items() if number in numbers]
            if not wanted:
                continue
            with open_run(path) as source:
                cells = {key_of(cell): cell for cell in source.cells()}
                for row in source.sample_rows(wanted if len(wanted) < len(own) else None):
                    cell = cells[row_key(row)]
                    if indices is not None and rollout_of(row, cell) not in indices:
                        continue
                    metric = self.metric_of(cell)
                    place = cell.id, row["index"], row["draw"]
                    needed = not only_failures_turns or is_failure(row, metric)
                    turns = tuple(t for _, t in source.turns_of(place)) if needed else ()
                    found = diagnose(row, turns, metric)
                    yield Diagnosed(own[cell.id], cell, row, turns, found)

    def finished(self) -> list[tuple[int, int]]:
        """How many samples of each cell have ended, and how many of these well."""
        found: list[tuple[int, int]] = []
        for path in self.paths:
            with open_run(path) as source:
                counts = source.finished()
                found += [counts.get(cell.id, (0, 0)) for cell in source.cells()]
        return found

    def metric_of(self, cell: Cell) -> str:
        """The metric that stands for a cell's task."""
        return self.metrics.get(cell.task, SUB_EM)


def rollout_of(row: Mapping[str, Any], cell: Cell) -> int:
    """A row's number in its cell, by which pages ask for it: samples from 0, then those of the
    second draw."""
    return int(row["index"]) + cell.samples * int(row["draw"])
