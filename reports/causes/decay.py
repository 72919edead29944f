"""The decay of a memory with length, and whether errors a turn explain it.

A turn that reads a fact stores it or not, and each later turn loses a stored one or not. Where the
two rates are the same at all lengths, of the facts read n turns before the end

    stored x (1 - lost a turn)^n

are in the last memory, and the decay with length follows from the rates: `expected` of a cell takes
them from the other lengths.

A memory may also hold something else by the time that the first fact is read. Where each turn
before it notes what is no fact with the same rate, the memory is still empty then in

    (1 - noted a turn)^turns before it

of the samples: `EmptyMemories`. That tells something of a method that leaves its memory empty until
it finds something; one that writes in every turn has a rate of 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agents.memagent import NO_MEMORY
from core.types import TokenSpan, Turn
from reports.causes.cause import Diagnosis
from reports.causes.lifeline import first_reading


@dataclass(slots=True)
class FactsKept:
    """What became of the facts that were read whole; those that are guessed are left out.

    `ages`: turns from the one that read a fact to the last that told a memory -> how many facts.
    `stored`: held word for word at some time; `turns`: later ones, in which they could be lost;
    `lost`: of the stored ones, for good; `blurred`: held with an error in place of being stored,
    or when they were lost; `held`: in the last memory; `answered`: of these, in the answer.
    """

    ages: Counter[int] = field(default_factory=Counter)
    stored: int = 0
    turns: int = 0
    lost: int = 0
    blurred: int = 0
    held: int = 0
    answered: int = 0

    def add(self, diagnosis: Diagnosis) -> None:
        """Counts the facts of a sample."""
        last = diagnosis.last_memory_turn
        for line in diagnosis.lifelines:
            if line.guessed or line.read_turn is None or last is None:
                continue
            self.ages[max(last - line.read_turn, 0)] += 1
            self.held += line.in_last_memory
            self.answered += line.in_last_memory and line.in_answer
            if line.stored_turn is None:
                self.blurred += line.blurred_turn is not None
                continue
            self.stored += 1
            if line.turns_lived is None:
                self.turns += last - line.stored_turn
            else:
                self.turns += line.turns_lived
                self.lost += 1
                self.blurred += line.blurred_turn == line.lost_turn

    def __add__(self, other: FactsKept) -> FactsKept:
        return FactsKept(
            self.ages + other.ages,
            *(self.stored + other.stored, self.turns + other.turns, self.lost + other.lost),
            *(self.blurred + other.blurred, self.held + other.held),
            self.answered + other.answered,
        )

    @property
    def read(self) -> int:
        """How many facts were read whole."""
        return self.ages.total()


def expected(cell: FactsKept, others: Iterable[FactsKept]) -> float | None:
    """The share of a cell's facts that its last memories hold if they are stored and lost as in
    `others`; None where those tell no rate."""
    known = sum(others, FactsKept())
    if not cell.read or not known.read or not known.turns:
        return None
    stored, stays = known.stored / known.read, 1 - known.lost / known.turns
    return sum(many * stored * stays**age for age, many in cell.ages.items()) / cell.read


@dataclass(slots=True)
class EmptyMemories:
    """The turns before the first one that read any of a fact; samples with a guessed fact are left
    out.

    `turns`: of these, the ones that began with an empty memory; `noted`: that left something in
    it; `waits`: turns before the first fact -> how many samples (of one that stopped reading before
    it: by its place, at the pace till then); `empty`: samples in which no turn before it noted
    anything.
    """

    turns: int = 0
    noted: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    empty: int = 0

    def add(self, diagnosis: Diagnosis, turns: Sequence[Turn]) -> None:
        """Counts a sample's turns."""
        lines = diagnosis.lifelines
        if not lines or any(line.guessed or line.place is None for line in lines):
            return
        places = [line.place for line in lines if line.place]
        first = first_reading(places, turns)
        memories = [turn.memory for turn in turns[:first] if turn.memory is not None]
        noted = next((n for n, text in enumerate(memories) if not is_empty(text)), None)
        self.turns += len(memories) if noted is None else noted + 1
        self.noted += noted is not None
        wait = _turns_to(places, turns) if first is None else first
        if wait is not None:
            self.waits[wait] += 1
            self.empty += noted is None

    def __add__(self, other: EmptyMemories) -> EmptyMemories:
        return EmptyMemories(
            *(self.turns + other.turns, self.noted + other.noted),
            *(self.waits + other.waits, self.empty + other.empty),
        )


def _turns_to(places: Sequence[TokenSpan], turns: Sequence[Turn]) -> int | None:
    """After how many turns one that stopped before the first place would have read it; None where
    it did not stop before."""
    ends = [turn.reads[-1].end for turn in turns if turn.reads]
    start = min(place.start for place in places)
    return start * len(ends) // ends[-1] if ends and ends[-1] <= start else None


def is_empty(memory: str) -> bool:
    """Whether a memory says nothing, or only what MemAgent's and GRU-Mem's first one says."""
    return memory.strip() in ("", NO_MEMORY)


def expected_empty(cell: EmptyMemories, others: Iterable[EmptyMemories]) -> float | None:
    """The share of a cell's samples that come to their first fact with an empty memory, if a turn
    notes something with the rate of `others`; None where those tell none."""
    known = sum(others, EmptyMemories())
    samples = cell.waits.total()
    if not samples or not known.turns:
        return None
    stays = 1 - known.noted / known.turns
    return sum(many * stays**wait for wait, many in cell.waits.items()) / samples
