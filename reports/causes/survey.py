"""The causes of a whole run: by cell, and how long stored facts lived.

Samples pass one at a time, so memory is that of the largest sample and of the counts, whatever
the size of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ledger import primary_metrics
from benchmarks.store import Cell
from core.types import Turn
from reports.causes.cause import Cause, Diagnosis, Gate, diagnose
from reports.causes.pictured import Pictured
from reports.labels import Series
from reports.run.exported import RunSource, key_of, open_run, row_key
from reports.run.traces import Key
from tasks.scoring import SUB_EM


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A finished sample: its cell, its row of the store, its turns, and where it lost what."""

    cell: Cell
    row: Mapping[str, Any]
    turns: tuple[Turn, ...]
    diagnosis: Diagnosis


@dataclass(slots=True)
class CellCauses:
    """Why the failures of a cell failed; the causes add up to them. `guessed`: of these, the
    causes that hang on a guess; `gates`: what GRU-Mem's gates did, by cause."""

    cell: Cell
    finished: int = 0
    failures: int = 0
    causes: Counter[Cause] = field(default_factory=Counter)
    guessed: Counter[Cause] = field(default_factory=Counter)
    gates: Counter[tuple[Cause, Gate]] = field(default_factory=Counter)

    @property
    def series(self) -> Series:
        """Its method and model."""
        return Series(self.cell.method, self.cell.model)

    def add(self, diagnosis: Diagnosis) -> None:
        """Counts a sample."""
        self.finished += 1
        if diagnosis.cause is None:
            return
        self.failures += 1
        self.causes[diagnosis.cause] += 1
        self.guessed[diagnosis.cause] += diagnosis.guessed
        if diagnosis.gate is not None:
            self.gates[diagnosis.cause, diagnosis.gate] += 1


@dataclass(slots=True)
class Lifetimes:
    """Turns that stored facts stayed in the memory -> how many: `lost` of those that were lost,
    `kept` of those that were still there after the last turn."""

    lost: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)

    def add(self, diagnosis: Diagnosis) -> None:
        """Counts the stored facts of a sample, those that were guessed left out."""
        last = diagnosis.last_memory_turn
        for line in diagnosis.lifelines:
            if line.guessed or line.stored_turn is None or last is None:
                continue
            if line.turns_lived is None:
                self.kept[last - line.stored_turn] += 1
            else:
                self.lost[line.turns_lived] += 1

    def __add__(self, other: Lifetimes) -> Lifetimes:
        return Lifetimes(self.lost + other.lost, self.kept + other.kept)

    @property
    def facts(self) -> int:
        """How many facts were stored."""
        return self.lost.total() + self.kept.total()


@dataclass(frozen=True, slots=True)
class Survey:
    """What the failures of a run, or of several, come from: cells in the order of the plans,
    lifetimes by (task, series), and the cells that are shown fact by fact."""

    cells: tuple[CellCauses, ...]
    lifetimes: Mapping[tuple[str, Series], Lifetimes]
    pictured: tuple[Pictured, ...]

    @property
    def failures(self) -> int:
        """Samples that failed."""
        return sum(cell.failures for cell in self.cells)

    @property
    def guessed(self) -> int:
        """Failures whose cause hangs on a guess."""
        return sum(cell.guessed.total() for cell in self.cells)

    def count(self, cause: Cause) -> int:
        """Failures of this cause."""
        return sum(cell.causes[cause] for cell in self.cells)

    def count_guessed(self, cause: Cause) -> int:
        """Failures of this cause, as far as it is guessed."""
        return sum(cell.guessed[cause] for cell in self.cells)

    @property
    def known(self) -> bool:
        """Whether any failure has a cause that its turns tell."""
        return any(cell.causes.keys() - {Cause.FAILED, Cause.UNKNOWN} for cell in self.cells)

    @property
    def causes(self) -> list[Cause]:
        """The causes that there are, in the order of the way that a fact goes."""
        return [cause for cause in Cause if self.count(cause)]


def diagnosed(source: RunSource) -> Iterator[Diagnosed]:
    """Every finished sample of a run with its diagnosis, in the order of its store.

    Raises:
        StoreError: a sample that ended well has no score.
    """
    cells = {key_of(cell): cell for cell in source.cells()}
    metrics = primary_metrics(source.settings() or {})
    for row in source.sample_rows():
        cell = cells[row_key(row)]
        place = cell.id, row["index"], row["draw"]
        turns = tuple(turn for _, turn in source.turns_of(place))
        metric = metrics.get(cell.task, SUB_EM)
        yield Diagnosed(cell, row, turns, diagnose(row, turns, metric))


def survey(sources: Iterable[RunSource], shown: Collection[Key] = ()) -> Survey:
    """Counts the causes of all failures, and how long stored facts lived; keeps the facts of the
    cells in `shown`.

    Raises:
        StoreError: a sample that ended well has no score.
    """
    cells: list[CellCauses] = []
    lifetimes: dict[tuple[str, Series], Lifetimes] = {}
    pictured: dict[Key, Pictured] = {}
    for source in sources:
        counts = {cell.id: CellCauses(cell) for cell in source.cells()}
        cells += counts.values()
        for one in diagnosed(source):
            counted = counts[one.cell.id]
            counted.add(one.diagnosis)
            lived = lifetimes.setdefault((one.cell.task, counted.series), Lifetimes())
            lived.add(one.diagnosis)
            if key_of(one.cell) in shown:
                picture = pictured.setdefault(key_of(one.cell), Pictured(one.cell))
                picture.add(one.turns, one.diagnosis)
    return Survey(tuple(cells), lifetimes, tuple(pictured[key] for key in shown if key in pictured))


def survey_runs(runs: Sequence[Path], shown: Collection[Key] = ()) -> Survey:
    """`survey` of the stores or exports of one run, or of several."""
    with ExitStack() as stack:
        return survey([stack.enter_context(open_run(run)) for run in runs], shown)
