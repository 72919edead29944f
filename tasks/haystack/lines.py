"""Haystacks as lazy sequences of lines: nothing is rendered before it is read."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import overload

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise line."""


class LazyLines(Sequence[str]):
    """A sequence of strings whose items are made on access."""

    __slots__ = ()

    def line(self, index: int) -> str:
        """The string at `index` (0 <= index < len)."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self.line(i) for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"line {index} of {len(self)}")
        return self.line(position)

    def __iter__(self) -> Iterator[str]:
        return map(self.line, range(len(self)))


class Repeated(LazyLines):
    """One string, `copies` times."""

    __slots__ = ("copies", "text")

    def __init__(self, text: str, copies: int) -> None:
        self.text = text
        self.copies = copies

    def __len__(self) -> int:
        return self.copies

    def line(self, index: int) -> str:
        return self.text


class Inserted(LazyLines):
    """`base` with further lines in between; `inserted` maps an index of the result to a line."""

    __slots__ = ("base", "indexes", "inserted")

    def __init__(self, base: Sequence[str], inserted: Mapping[int, str]) -> None:
        self.base = base
        self.inserted = dict(inserted)
        self.indexes = sorted(inserted)

    def __len__(self) -> int:
        return len(self.base) + len(self.inserted)

    def line(self, index: int) -> str:
        before = bisect_left(self.indexes, index)
        if before < len(self.indexes) and self.indexes[before] == index:
            return self.inserted[index]
        return self.base[index - before]

    def __iter__(self) -> Iterator[str]:
        rest = iter(self.base)
        done = 0
        for index in self.indexes:
            yield from islice(rest, index - done)
            yield self.inserted[index]
            done = index + 1
        yield from rest


def insertion_points(
    rng: random.Random, units: int, needles: int, depth: float | None = None
) -> list[int]:
    """Indexes that `needles` lines get when each is put before a distinct random one of
    `units` lines, ascending. As in RULER, no needle comes after the last unit. With a depth,
    the first line stands behind that share of the units, or as near as the others allow."""
    if depth is None:
        before = sorted(rng.sample(range(units), needles))
    else:
        first = min(int(units * depth), units - needles)
        before = [first, *sorted(rng.sample(range(first + 1, units), needles - 1))]
    return [point + earlier for earlier, point in enumerate(before)]


def pinned_points(
    rng: random.Random, units: int, needles: int, pinned: int, depth: float
) -> list[int]:
    """The same for lines in any order, a place for each: line `pinned` stands behind that share
    of the units, the others before distinct random units."""
    point = min(int(units * depth), units - 1)
    before = [other + (other >= point) for other in rng.sample(range(units - 1), needles - 1)]
    before.insert(pinned, point)
    rank = {one: earlier for earlier, one in enumerate(sorted(before))}
    return [one + rank[one] for one in before]
