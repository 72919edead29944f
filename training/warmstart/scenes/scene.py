"""What a turn shows, before it is laid out as a prompt and a reply.

The needle tasks are written as tokens (`training.warmstart.stories`); tasks whose texts are richer
make scenes: `fiction` and `words` beside this. `training.warmstart.demonstrations` lays out both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from training.warmstart.stories import Ids, TaskShape


@dataclass(frozen=True, slots=True)
class Odds:
    """`near`: share of haystack needles that share a word with a key asked for. `blank`: share
    of memory turns with nothing known and nothing to find, besides those that come by chance:
    most turns of a long context. `slips`: share of the turns with a memory and nothing new in
    which the demonstrator drops the memory (in GRU-Mem's form it opens the update gate for
    nothing): what it does wrong, for RL to undo. `one_new`: of the turns that add entries, the
    share that add one, however many are missing. `again`: share of the turns with nothing new that
    are drawn again."""

    near: float = 0.0
    blank: float = 0.0
    slips: float = 0.0
    one_new: float = 0.85
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens for all that a scene fills: the question, the section, and the memory, which stands
    in the prompt, and in the reply with what is added. `chunk`: the most of a section.
    `told`: how often the reply says what is added."""

    tokens: int
    chunk: int
    told: int = 1

    def section(self, question: Ids, memory: Ids, added: Sequence[Ids]) -> int:
        """What is left for the section."""
        new = sum(len(entry) for entry in added)
        return min(self.chunk, self.tokens - len(question) - 2 * len(memory) - self.told * new - 2)


@dataclass(frozen=True, slots=True)
class MemoryScene:
    """A memory turn. `old`: the memory's entries; `added`: what the section adds; `complete`:
    whether the memory then holds all that is asked for, where the question tells. `sources`: of
    each added entry, the section's places where its document's title and its value begin, where
    they stand there."""

    question: Ids
    old: Sequence[Ids]
    section: Ids
    added: Sequence[Ids]
    complete: bool
    sources: Sequence[tuple[int | None, int | None]] = ()


@dataclass(frozen=True, slots=True)
class AnswerScene:
    """An answer turn; `answer` without a full stop, empty if the memory does not tell."""

    question: Ids
    entries: Sequence[Ids]
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
