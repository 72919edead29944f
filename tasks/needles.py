"""Needle sentences, and the haystack that is made of nothing else.

Lines are kept as numbers (4 bytes a word key or a number) and rendered when read; numbers are
drawn and measured in blocks, because at 512K tokens a haystack has 23,000 lines.
"""

from __future__ import annotations

import random
import uuid
from array import array
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks.lines import LazyLines
from tasks.measure import Meter
from tasks.words import lexicon

Kind = Literal["words", "numbers", "uuids"]
Numbers = NDArray[np.int64]

LEAST_NUMBER = 10**6
NUMBERS = 9 * 10**6
"""RULER's numbers have seven digits, the first not 0."""

BLOCK_LINES = 4096
LEAST_LINE_TOKENS = 16
"""A guess from below at a needle line's tokens, to size the first block of draws."""


def needle_text(kind: Kind, key: str, value: str) -> str:
    """The sentence that hides `value` under `key`; RULER's wording."""
    return f"One of the special magic {kind} for {key} is: {value}."


def render(kind: Kind, number: int) -> str:
    """The text of a drawn key or value."""
    if kind == "words":
        return lexicon().pair(number)
    return str(number) if kind == "numbers" else str(uuid.UUID(int=number))


def draw(kind: Kind, rng: random.Random) -> int:
    """One key or value, as the number that stands for it."""
    if kind == "words":
        return rng.randrange(lexicon().pairs)
    if kind == "numbers":
        return LEAST_NUMBER + rng.randrange(NUMBERS)
    return uuid.UUID(int=rng.getrandbits(128), version=4).int


def draw_distinct(kind: Kind, rng: random.Random, count: int) -> list[str]:
    """`count` different keys or values, as texts, in the order of drawing."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[render(kind, draw(kind, rng))] = None
    return list(texts)


class NeedleLines(LazyLines):
    """Needle sentences of random keys and values, rendered on access."""

    __slots__ = ("key_kind", "keys", "value_kind", "values")

    def __init__(
        self, key_kind: Kind, value_kind: Kind, keys: Sequence[int], values: Sequence[int]
    ) -> None:
        self.key_kind = key_kind
        self.value_kind = value_kind
        self.keys = keys
        self.values = values

    def __len__(self) -> int:
        return len(self.keys)

    def line(self, index: int) -> str:
        key = render(self.key_kind, self.keys[index])
        return needle_text(self.value_kind, key, render(self.value_kind, self.values[index]))


def fill_with_needles(
    rng: random.Random,
    key_kind: Kind,
    value_kind: Kind,
    room: int,
    excluded: Collection[str],
    meter: Meter,
    least: int,
) -> tuple[NeedleLines, int]:
    """As many random needle lines as fit into `room` tokens, newlines included, but at least
    `least` even if they do not fit. Returns them and their tokens. No key is in `excluded`.
    """
    keys = _column(key_kind)
    values = _column(value_kind)
    used = 0
    while True:
        block = min(BLOCK_LINES, max(room - used, 0) // LEAST_LINE_TOKENS + least)
        new_keys = _draw_block(key_kind, rng, block, excluded)
        new_values = _draw_block(value_kind, rng, block, ())
        costs = _line_costs(meter, key_kind, value_kind, new_keys, new_values)
        ends = np.cumsum(costs)
        fits = int(np.searchsorted(ends, room - used, side="right"))
        fits = max(fits, min(block, least - len(keys)))
        keys.extend(new_keys[:fits])
        values.extend(new_values[:fits])
        used += int(ends[fits - 1]) if fits else 0
        if fits < block:
            return NeedleLines(key_kind, value_kind, keys, values), used


def _column(kind: Kind) -> list[int] | array[int]:
    return [] if kind == "uuids" else array("I")


def _draw_block(kind: Kind, rng: random.Random, count: int, excluded: Collection[str]) -> list[int]:
    if kind == "uuids":
        return [draw(kind, rng) for _ in range(count)]
    words = kind == "words"
    numbers = _uniform(rng, lexicon().pairs if words else NUMBERS, count)
    if not words:
        return list((numbers + LEAST_NUMBER).tolist())
    banned = {number for text in excluded for number in lexicon().pair_numbers(text)}
    for place in np.flatnonzero(np.isin(numbers, list(banned))):
        while int(numbers[place]) in banned:
            numbers[place] = (numbers[place] + 1) % lexicon().pairs
    return list(numbers.tolist())


def _uniform(rng: random.Random, many: int, count: int) -> Numbers:
    """`count` integers of 0..many-1 (many < 2**32): the high word of 64 random bits x many."""
    bits = np.frombuffer(rng.randbytes(8 * count), dtype="<u8")
    low = (bits & np.uint64(0xFFFFFFFF)) * np.uint64(many) >> np.uint64(32)
    high = (bits >> np.uint64(32)) * np.uint64(many)
    return ((high + low) >> np.uint64(32)).astype(np.int64)


def _line_costs(
    meter: Meter, key_kind: Kind, value_kind: Kind, keys: list[int], values: list[int]
) -> Numbers:
    """Tokens of each line with its newline. Parts that the pre-tokenizer splits are looked up;
    a tokenizer (or a kind) without such parts has its lines tokenized one by one."""
    value_cost = _number_tokens(meter) if value_kind == "numbers" else None
    pair_costs = _pair_tokens(meter) if key_kind == "words" else None
    if value_cost is None or pair_costs is None:
        lines = NeedleLines(key_kind, value_kind, keys, values)
        return np.array([meter.line_once(line + "\n") for line in lines], dtype=np.int64)
    adjectives, nouns = pair_costs
    which = np.array(keys, dtype=np.int64)
    fixed = meter.count(f"One of the special magic {value_kind} for") + meter.count(" is:")
    return fixed + value_cost + adjectives[which // len(nouns)] + nouns[which % len(nouns)]


@lru_cache(maxsize=4)
def _pair_tokens(meter: Meter) -> tuple[Numbers, Numbers] | None:
    """Tokens of " adjective" and of "-noun", if the pre-tokenizer splits between them."""
    if not all(meter.tokenizer.splits_between(f" {a}", "-b") for a in ("big", "wide-eyed")):
        return None
    words = lexicon()
    return (
        np.array([meter.count(f" {word}") for word in words.adjectives], dtype=np.int64),
        np.array([meter.count(f"-{word}") for word in words.nouns], dtype=np.int64),
    )


@lru_cache(maxsize=4)
def _number_tokens(meter: Meter) -> int | None:
    """Tokens of " 1234567.\\n", if they are the same for all seven digits."""
    if meter.digit_tokens is None:
        return None
    edges = {meter.line(f" {a}{b}.\n") for a in range(1, 10) for b in range(10)}
    return edges.pop() + 5 * meter.digit_tokens if len(edges) == 1 else None
