"""The lifeline of a fact: when it was read, entered the memory, changed there, and was lost.

Turns are counted from 0, as the store counts the turns of a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.types import TokenSpan, Turn
from reports.causes.facts import Fact
from reports.causes.holding import Held, Search, Text


@dataclass(frozen=True, slots=True)
class Lifeline:
    """What became of one fact.

    `fact`: the gold, or the evidence where no gold is in it; `place`: its tokens in the context,
    None where no evidence is known. `read_turn`: the turn by whose end all of it was read;
    `split`: no turn read all of it at once. `stored_turn`: the turn after which the memory first
    held it, word for word; `blurred_turn`: the first one after which the memory held it with an
    error only (counted anew each time that it is stored). `changed_turns`: turns after the storing
    in which the sentence that tells it was written otherwise, or it went, to come back, or came
    back; `lost_turn`: the one after which the memory did not hold it any more, up to the end.
    `in_last_memory`, `in_answer`: whether these hold it. `guessed`: it was looked for by its
    evidence's words, or has no place (see facts.py).
    """

    fact: str
    place: TokenSpan | None
    read_turn: int | None
    stored_turn: int | None
    changed_turns: tuple[int, ...]
    lost_turn: int | None
    blurred_turn: int | None
    in_last_memory: bool
    in_answer: bool
    guessed: bool
    split: bool = False

    @property
    def turns_lived(self) -> int | None:
        """Turns from its storing to its loss, None where it was not stored or not lost."""
        if self.stored_turn is None or self.lost_turn is None:
            return None
        return self.lost_turn - self.stored_turn


def lifelines_of(
    row: Mapping[str, Any], turns: Sequence[Turn], facts: Sequence[Fact]
) -> tuple[Lifeline, ...]:
    """The lifeline of each fact of a sample, from its row in the store and its turns."""
    memories = _memories(turns)
    prediction = row["prediction"]
    answer = Text((row["reply"] if prediction is None else prediction) or "")
    question = Text(row["question"])
    golds = {wording for fact in facts for wording in fact.wordings}
    found = []
    for fact in facts:
        others = [Text(gold) for gold in golds - {*fact.wordings}]
        found.append(_lifeline(Search(fact, [question, *others]), turns, memories, answer))
    return tuple(found)


def _memories(turns: Sequence[Turn]) -> list[tuple[int, Text]]:
    """(turn, memory after it) of those that told one; an unchanged memory is the same object."""
    found: list[tuple[int, Text]] = []
    for number, turn in enumerate(turns):
        if turn.memory is not None:
            same = bool(found) and found[-1][1].text == turn.memory
            found.append((number, found[-1][1] if same else Text(turn.memory)))
    return found


def _lifeline(
    search: Search, turns: Sequence[Turn], memories: Sequence[tuple[int, Text]], answer: Text
) -> Lifeline:
    fact = search.fact
    first, read, split = _reading(fact.place, turns)
    for _, text in (one for one in memories if first is not None and one[0] < first):
        search.ignore(text)
    after = [one for one in memories if first is None or one[0] >= first]
    course = _course(search, after)
    return Lifeline(
        fact=fact.text,
        place=fact.place,
        read_turn=read,
        stored_turn=course.stored,
        changed_turns=tuple(course.changed),
        lost_turn=course.lost,
        blurred_turn=course.blurred,
        in_last_memory=course.held is Held.WHOLE,
        in_answer=search.held(answer) is Held.WHOLE,
        guessed=fact.guessed,
        split=split,
    )


def _reading(place: TokenSpan | None, turns: Sequence[Turn]) -> tuple[int | None, int | None, bool]:
    """The first turn that read any of a place, the one by whose end all of it was read, and
    whether it was read and no turn read all of it at once."""
    if place is None:
        return None, None, False
    touching = [number for number, turn in enumerate(turns) if _touches(turn, place)]
    left = [place]
    read: int | None = None
    for number in touching:
        for span in turns[number].reads:
            left = [part for one in left for part in _without(one, span)]
        if not left:
            read = number
            break
    at_once = any(_within(place, span) for number in touching for span in turns[number].reads)
    return (touching[0] if touching else None), read, bool(touching) and not at_once


def first_reading(places: Sequence[TokenSpan], turns: Sequence[Turn]) -> int | None:
    """The first turn that read any of the places, or a part of one."""
    return next((n for n, turn in enumerate(turns) if any(_touches(turn, p) for p in places)), None)


def _touches(turn: Turn, place: TokenSpan) -> bool:
    return any(_meet(span, place) for span in turn.reads)


def _meet(one: TokenSpan, other: TokenSpan) -> bool:
    return one.start < other.end and other.start < one.end


def _within(inner: TokenSpan, outer: TokenSpan) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _without(part: TokenSpan, taken: TokenSpan) -> list[TokenSpan]:
    before = TokenSpan(part.start, min(part.end, taken.start))
    after = TokenSpan(max(part.start, taken.end), part.end)
    return [one for one in (before, after) if one.start < one.end]


@dataclass(slots=True)
class _Course:
    """A fact's way through the memories. `wording`: the words in which it was told last."""

    held: Held = Held.NO
    stored: int | None = None
    blurred: int | None = None
    lost: int | None = None
    changed: list[int] = field(default_factory=list)
    wording: str = ""

    def step(self, number: int, held: Held, wording: str) -> None:
        """Goes on by the memory after turn `number`."""
        if held is Held.WHOLE:
            if self.lost is not None:
                self.changed.append(self.lost)  # it went, and came back
            if self.stored is None:
                self.stored = number
            elif self.lost is not None or wording != self.wording:
                self.changed.append(number)
            self.lost = self.blurred = None
            self.wording = wording
        elif self.held is Held.WHOLE:
            self.lost = number
        if held is Held.BLURRED and self.blurred is None:
            self.blurred = number
        self.held = held


def _course(search: Search, memories: Sequence[tuple[int, Text]]) -> _Course:
    course = _Course()
    before: Text | None = None
    for number, text in memories:
        if text is not before:
            held = search.held(text)
            course.step(number, held, search.wording(text) if held is Held.WHOLE else "")
        before = text
    return course
