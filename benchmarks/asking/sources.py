"""Where an answer comes from: the chunks after which the words of the final memory first appeared.

A word counts that the method did not have before it read anything: that is in neither the
question nor the method's own prompts. A word of the final memory is laid to the first turn whose
memory has it, and so to the chunk that this turn read. Chunks that brought words of the answer
come first, then those that brought more words.

A method without a memory that reads chunk by chunk (map_reduce) is looked at in the same way,
with its notes in the memory's place and the answer's words looked for. One that reads everything
in one turn has as its sources what it read; of several stretches, those that hold words of the
answer, if any does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.types import TokenSpan, Turn

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Source:
    """A stretch of the context, and the words that came from it, in their order in the memory."""

    span: TokenSpan
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A rollout that ended well: its turns, and what it answered. `known`: texts whose words the
    method had from the start, its question and prompts."""

    turns: Sequence[Turn]
    answer: str
    known: Sequence[str]


def sources(ended: Ended, text_of: Callable[[TokenSpan], str]) -> list[Source]:
    """The sources of an answer, the best first. `text_of` reads a stretch of the context."""
    known = {word for text in ended.known for word in _words(text)}
    answer = [word for word in _words(ended.answer) if word not in known]
    reading = [turn for turn in ended.turns if turn.reads and turn.tag != "answer"]
    if not reading:
        return _of_one_turn(ended.turns, answer, text_of)
    memories = [turn.memory for turn in ended.turns if turn.memory is not None]
    final = [word for word in _words(memories[-1]) if word not in known] if memories else answer
    first: dict[str, int] = {}
    for number, turn in enumerate(reading):
        for word in _words(turn.reply if turn.memory is None else turn.memory):
            first.setdefault(word, number)
    brought: dict[int, list[str]] = {}
    for word in final:
        if word in first:
            brought.setdefault(first[word], []).append(word)

    def weight(number: int) -> tuple[int, int]:
        words = brought[number]
        return -sum(word in answer for word in words), -len(words)

    return [
        Source(span, tuple(brought[number]))
        for number in sorted(brought, key=weight)
        for span in reading[number].reads
    ]


def _of_one_turn(
    turns: Sequence[Turn], answer: Sequence[str], text_of: Callable[[TokenSpan], str]
) -> list[Source]:
    """What the turns read, the parts that hold words of the answer first."""
    spans = [span for turn in turns for span in turn.reads]
    if len(spans) < 2:
        return [Source(span) for span in spans]
    found = []
    for span in spans:
        held = {*_words(text_of(span))}
        found.append(Source(span, tuple(word for word in answer if word in held)))
    holding = [source for source in found if source.words]
    return sorted(holding, key=lambda source: -len(source.words)) or found


def _words(text: str) -> list[str]:
    """The words of a text in lower case, each once, in their order."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))
