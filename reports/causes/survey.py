"""The causes of a whole run: by cell, and how long stored facts lived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from benchmarks.store import Cell
from reports.causes.cause import Cause, Diagnosis, Gate
from reports.causes.decay import EmptyMemories, FactsKept
from reports.causes.diagnosed import Diagnosed, Runs
from reports.causes.pictured import Pictured
from reports.labels import Series
from reports.run.exported import key_of
from reports.run.traces import Key


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
    """What the failures of a run, or of several, come from: cells in the order of the plans, what
    became of the facts that each read and of the memory before them, lifetimes by (task, series),
    and the cells that are shown fact by fact."""

    cells: tuple[CellCauses, ...]
    kept: tuple[FactsKept, ...]
    before: tuple[EmptyMemories, ...]
    lifetimes: dict[tuple[str, Series], Lifetimes]
    shown: dict[Key, Pictured]

    @classmethod
    def of(cls, runs: Runs, shown: Collection[Key] = ()) -> Survey:
        """One that has counted nothing yet. `shown`: the cells whose facts it keeps."""
        cells = {key_of(place.cell): place.cell for place in runs.places}
        counts = tuple(CellCauses(place.cell) for place in runs.places)
        kept = tuple(FactsKept() for _ in counts)
        before = tuple(EmptyMemories() for _ in counts)
        return cls(counts, kept, before, {}, {key: Pictured(cells[key]) for key in shown})

    def add(self, one: Diagnosed) -> None:
        """Counts a sample with its turns."""
        counted = self.cells[one.number]
        counted.add(one.diagnosis)
        self.kept[one.number].add(one.diagnosis)
        self.before[one.number].add(one.diagnosis, one.turns)
        lived = self.lifetimes.setdefault((one.cell.task, counted.series), Lifetimes())
        lived.add(one.diagnosis)
        if picture := self.shown.get(key_of(one.cell)):
            picture.add(one.turns, one.diagnosis)

    def other_lengths(self, number: int) -> list[int]:
        """Numbers of the cells of a cell's task and series, at all lengths but its own."""
        asked = self.cells[number]
        return [
            other
            for other, cell in enumerate(self.cells)
            if (cell.cell.task, cell.series) == (asked.cell.task, asked.series)
            and cell.cell.length != asked.cell.length
        ]

    @property
    def pictured(self) -> list[Pictured]:
        """The cells that are shown fact by fact."""
        return [*self.shown.values()]

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
