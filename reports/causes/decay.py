"""The decay of a memory with length, and whether errors a turn explain it.

A turn that reads a fact stores it or not, and each later turn loses a stored one or not. Where the
two rates are the same at all lengths, of the facts read n turns before the end

    stored x (1 - lost a turn)^n

are in the last memory, and the decay with length follows from the rates: `expected` of a cell takes
them from the other lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from reports.causes.cause import Diagnosis


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
