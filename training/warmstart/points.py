"""Where the tokens of a reply stand already: what the pointer heads are shown.

A reply repeats the memory's entries and those that the section adds. For each of their tokens a
reader knows the place that it is read from; where an entry could follow and none does, there is
nothing left, and the place is `nothing`, the end of the prompt's message.

Places count the prompt's tokens and the reply's together. A point is (the place before the token
that is said, the place where it stands).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from training.warmstart.stories import Ids

Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """`tokens` tokens of an entry from its token `first` on, which stand at `place`; `said`:
    counted from where the reply's first entry begins."""

    first: int
    tokens: int
    place: int
    said: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """An entry and where its parts were read; what was read elsewhere, or cut off, has no part."""

    entry: Ids
    parts: tuple[Part, ...]


def read_whole(entry: Ids, place: int, *, stop: int = 1) -> Read:
    """An entry that stands in one piece, but for the last `stop` tokens that close it."""
    return Read(entry, (Part(0, len(entry) - stop, place),))


def read_in_row(entries: Sequence[Ids], place: int) -> list[Read]:
    """Entries that stand one behind the other."""
    found = []
    for entry in entries:
        found.append(read_whole(entry, place, stop=0))
        place += len(entry)
    return found


def points_of(entries: Sequence[Read], at: int, nothing: int) -> Iterator[Point]:
    """Of entries said one behind the other from `at` on, and of nothing behind them."""
    begin = at
    for read in entries:
        for part in read.parts:
            place = part.place + (begin if part.said else 0)
            for token in range(part.tokens):
                yield at + part.first + token - 1, place + token
        at += len(read.entry)
    yield at - 1, nothing


def first_point(entries: Sequence[Read], before: int, nothing: int) -> Point:
    """Where a reply decides whether it says anything: the first thing to say, or nothing."""
    parts = [part.place for read in entries[:1] for part in read.parts[:1]]
    return before, parts[0] if parts else nothing
