"""What a turn shows, before it is laid out as a prompt and a reply.

The needle tasks are written as tokens (`training.warmstart.stories`); tasks whose texts are richer
make scenes: `fiction` and `words` beside this. `training.warmstart.demonstrations` lays out both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from training.warmstart.stories import Ids, TaskShape


@dataclass(frozen=True, slots=True)
class Odds:
    """`near`: share of haystack needles that share a word with a key asked for. `blank`: share
    of memory turns with nothing known and nothing to find, besides those that come by chance:
    most turns of a long context. `one_new`: of the turns that add entries, the share that add one,
    however many are missing. `again`: share of the turns with nothing new that are drawn again.
    `drill`: share of a fiction's memory turns in which the memory looks for facts of other
    documents too, so that a section has more to find; `inverse`: share of those, where they are
    relations, that are looked for from the other side."""

    near: float = 0.0
    blank: float = 0.0
    one_new: float = 0.85
    again: float = 0.0
    drill: float = 0.0
    inverse: float = 0.25


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of a memory. Where it says first what it is about, as the question or an entry
    before it tells, that takes `lead` tokens. `new`: the section tells it; the rest of it stands
    from the section's token `value` on, and `mention` is where the section says what it is about
    and what it tells of that (None: not in one piece). `pending`: what it leads to is still looked
    for."""

    entry: Ids
    lead: int = 0
    new: bool = False
    value: int | None = None
    mention: int | None = None
    pending: bool = False


Twice = Literal["none", "new", "all"]


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens for all that a scene fills: the question, the section, the memory in the prompt and
    the one in the reply. `chunk`: the most of a section. `twice`: the entries that the reply says
    twice."""

    tokens: int
    chunk: int
    twice: Twice = "none"

    def section(self, question: Ids, old: Sequence[Note], after: Sequence[Note]) -> int:
        """What is left for the section. `old`, `after`: the two memories."""
        again = {"none": [], "new": [note for note in after if note.new], "all": after}[self.twice]
        said = [*old, *after, *again]
        return min(self.chunk, self.tokens - len(question) - sum(len(n.entry) for n in said) - 2)


@dataclass(frozen=True, slots=True)
class MemoryScene:
    """A memory turn. `old`: the memory's entries; `notes`: those of the reply, in order;
    `complete`: whether they hold all that is asked for, where the question tells. `asked`: whether
    the question foretells what all entries are about."""

    question: Ids
    old: Sequence[Note]
    section: Ids
    notes: Sequence[Note]
    complete: bool
    asked: bool = True

    @property
    def new(self) -> list[Note]:
        """What the section tells."""
        return [note for note in self.notes if note.new]


@dataclass(frozen=True, slots=True)
class AnswerScene:
    """An answer turn; `answer` without a full stop, empty if the memory does not tell."""

    question: Ids
    entries: Sequence[Note]
    answer: Ids


@dataclass(frozen=True, slots=True)
class WholeScene:
    """A direct answer from a whole context, as above."""

    question: Ids
    context: Ids
    answer: Ids


class Scenes(Protocol):
    """A task's scenes, from an explicit RNG."""

    def memory(
        self, shape: TaskShape, room: Room, odds: Odds, rng: np.random.Generator
    ) -> MemoryScene: ...

    def answer(self, shape: TaskShape, rng: np.random.Generator) -> AnswerScene: ...

    def whole(
        self, shape: TaskShape, tokens: int, near: float, rng: np.random.Generator
    ) -> WholeScene:
        """`tokens`: of question, context and answer."""
        ...
