"""What a store holds, as types, and as the text of its columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.evidence import Placed
from core.types import Json, TokenSpan, Turn

Place = tuple[int, int, int]
"""Cell, index of the sample in it, draw."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One square of a suite: `samples` samples of a task at a length, by a method on a model, each
    answered `draws` times with seeds of its own."""

    id: int
    task: str
    length: int
    method: str
    model: str
    samples: int
    draws: int = 1

    @property
    def rollouts(self) -> int:
        """Answers of the cell: every draw of every sample."""
        return self.samples * self.draws

    @property
    def row(self) -> tuple[str, int, str, str, int, int]:
        """All of it but its id, as settings and exports write it."""
        return self.task, self.length, self.method, self.model, self.samples, self.draws


def turn_of(
    reads: str, memory: str | None, memory_is_reply: int, tag: str, reply: str, *ending: Any
) -> Turn:
    """A turn from its columns, as `Store.turns_of` selects them; without its prompt."""
    finish_reason, prompt_tokens, completion_tokens, seconds = ending
    return Turn(
        *(tag, (), reply, finish_reason, prompt_tokens, completion_tokens, seconds),
        reads=spans_of(reads),
        memory=reply if memory_is_reply else memory,
    )


@lru_cache(maxsize=4_096)  # samples that are read chunk by chunk share their spans
def spans_of(reads: str) -> tuple[TokenSpan, ...]:
    """The spans that a turn read, from their column."""
    return tuple(TokenSpan(start, end) for start, end in json.loads(reads))


def evidence_of(placed: Placed) -> dict[str, Json]:
    """A piece of evidence, as a sample's column holds it."""
    span = placed.tokens
    text, depth = placed.evidence.text, placed.depth
    return {"text": text, "tokens": [span.start, span.end], "depth": depth}


_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


def dump(value: object) -> str:
    """The JSON of a column."""
    return _JSON.encode(value)
