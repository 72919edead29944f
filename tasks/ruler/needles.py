"""Needle sentences, and the haystack that is made of nothing else.

Lines are kept as numbers (4 bytes a word key or a number, 16 a uuid) and rendered when
read; numbers are drawn and measured in blocks: at 512K tokens a haystack has 23,000 lines.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.haystack.lines import LazyLines
from tasks.haystack.measure import Meter
from tasks.ruler.uuids import Bytes, draw_uuids, uuid_texts, uuid_tokens
from tasks.ruler.words import lexicon

Kind = Literal["words", "numbers", "uuids"]
Numbers = NDArray[np.int64]
Block = NDArray[np.uint32] | Bytes
"""Drawn keys or values: a number each, or a row of 16 bytes for a uuid."""

LEAST_NUMBER = 10**6
NUMBERS = 9 * 10**6
"""RULER's numbers have seven digits, the first not 0."""

BLOCK_LINES, RENDERED_LINES = 4096, 512
"""Lines are drawn so many at a time, and rendered so many."""

LEAST_LINE_TOKENS, MOST_LINE_TOKENS = 16, 64
"""Guesses at a needle line's tokens, by which lines are drawn (enough of them) and measured (few
in vain, and SPARE_LINES so that it ends)."""
SPARE_LINES = 32


def needle_text(kind: Kind, key: str, value: str) -> str:
    """The sentence that hides `value` under `key`; RULER's wording."""
    return f"One of the special magic {kind} for {key} is: {value}."


def draw(kind: Kind, rng: random.Random) -> str:
    """One key or value."""
    if kind == "words":
        return lexicon().pair(rng.randrange(lexicon().pairs))
    if kind == "numbers":
        return str(LEAST_NUMBER + rng.randrange(NUMBERS))
    return uuid_texts(draw_uuids(rng, 1))[0]


def draw_distinct(kind: Kind, rng: random.Random, count: int) -> list[str]:
    """`count` different keys or values, in the order of drawing."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[draw(kind, rng)] = None
    return list(texts)


def draw_any(kind: Kind, rng: random.Random, count: int) -> list[str]:
    """`count` keys or values, of which some may be the same."""
    return [draw(kind, rng) for _ in range(count)]


class NeedleLines(LazyLines):
    """Needle sentences of random keys and values, rendered on access."""

    __slots__ = ("key_kind", "keys", "value_kind", "values")

    def __init__(self, key_kind: Kind, value_kind: Kind, keys: Block, values: Block) -> None:
        self.key_kind = key_kind
        self.value_kind = value_kind
        self.keys = keys
        self.values = values

    def __len__(self) -> int:
        return len(self.keys)

    def line(self, index: int) -> str:
        return self._lines(index, index + 1)[0]

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), RENDERED_LINES):
            yield from self._lines(first, first + RENDERED_LINES)

    def _lines(self, first: int, end: int) -> list[str]:
        keys = _texts(self.key_kind, self.keys[first:end])
        values = _texts(self.value_kind, self.values[first:end])
        start = f"One of the special magic {self.value_kind} for "
        return [f"{start}{key} is: {value}." for key, value in zip(keys, values, strict=True)]


def fill_with_needles(
    rng: random.Random,
    key_kind: Kind,
    value_kind: Kind,
    room: int,
    excluded: Collection[str],
    meter: Meter,
    least: int,
    near_misses: float = 0.0,
) -> tuple[NeedleLines, int]:
    """As many random needle lines as fit into `room` tokens, newlines included, but at least
    `least` even if they do not fit. Returns them and their tokens. No key is in `excluded`;
    of word keys the share `near_misses` (0 to 1) has one of the two words of such a key.
    """
    keys: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    used = lines = 0
    while True:
        block = min(BLOCK_LINES, max(room - used, 0) // LEAST_LINE_TOKENS + least)
        drawn = NeedleLines(
            key_kind,
            value_kind,
            _draw_block(key_kind, rng, block, excluded, near_misses),
            _draw_block(value_kind, rng, block),
        )
        fits, tokens = _fitting(meter, drawn, room - used, min(block, least - lines))
        keys.append(drawn.keys[:fits])
        values.append(drawn.values[:fits])
        used += tokens
        lines += fits
        if fits < block:
            drawn = NeedleLines(key_kind, value_kind, np.concatenate(keys), np.concatenate(values))
            return drawn, used


def first_lines(lines: NeedleLines, count: int, meter: Meter) -> tuple[NeedleLines, int]:
    """The first `count` of the lines, and their tokens with their newlines."""
    first = NeedleLines(lines.key_kind, lines.value_kind, lines.keys[:count], lines.values[:count])
    return first, int(_line_costs(meter, first).sum())


def _fitting(meter: Meter, lines: NeedleLines, room: int, least: int) -> tuple[int, int]:
    """How many of the lines fit, at least `least`, and their tokens. Lines are measured in
    order, and not many more than are needed."""
    fits = used = 0
    first = 0
    while first < len(lines):
        size = max((room - used) // MOST_LINE_TOKENS, least) + SPARE_LINES
        part = slice(first, first + size)
        costs = _line_costs(
            meter,
            NeedleLines(lines.key_kind, lines.value_kind, lines.keys[part], lines.values[part]),
        )
        ends = np.cumsum(costs)
        more = int(np.searchsorted(ends, room - used, side="right"))
        more = max(more, min(len(ends), least - fits))
        used += int(ends[more - 1]) if more else 0
        fits += more
        if more < len(ends):
            break
        first += size
    return fits, used


def _texts(kind: Kind, block: Block) -> list[str]:
    if kind == "uuids":
        return uuid_texts(block.astype(np.uint8, copy=False))
    if kind == "numbers":
        return list(map(str, block.tolist()))
    adjectives, nouns = _halves()
    which = np.divmod(block, len(nouns))
    pairs = zip(adjectives[which[0]].tolist(), nouns[which[1]].tolist(), strict=True)
    return [f"{adjective}-{noun}" for adjective, noun in pairs]


@cache
def _halves() -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Adjectives and nouns, to be taken many at a time."""
    return np.array(lexicon().adjectives, dtype=object), np.array(lexicon().nouns, dtype=object)


def _draw_block(
    kind: Kind,
    rng: random.Random,
    count: int,
    excluded: Collection[str] = (),
    near_misses: float = 0.0,
) -> Block:
    if kind == "uuids":
        return draw_uuids(rng, count)
    words = kind == "words"
    numbers = _uniform(rng, lexicon().pairs if words else NUMBERS, count)
    if not words:
        return (numbers + LEAST_NUMBER).astype(np.uint32)
    banned = {number for text in excluded for number in lexicon().pair_numbers(text)}
    if near_misses:
        numbers = _with_near_misses(rng, numbers, sorted(banned), near_misses)
    for place in np.flatnonzero(np.isin(numbers, list(banned))):
        while int(numbers[place]) in banned:
            numbers[place] = (numbers[place] + 1) % lexicon().pairs
    return numbers.astype(np.uint32)


def _with_near_misses(
    rng: random.Random, pairs: Numbers, keys: Sequence[int], share: float
) -> Numbers:
    """`pairs`, of which about `share` get the adjective or the noun of one of `keys`."""
    nouns, count, fine = len(lexicon().nouns), len(pairs), 10**6
    key = np.array(keys)[_uniform(rng, len(keys), count)]
    same_adjective = _uniform(rng, 2, count) == 0
    chosen = _uniform(rng, fine, count) < share * fine
    adjective = np.where(chosen & same_adjective, key // nouns, pairs // nouns)
    noun = np.where(chosen & ~same_adjective, key % nouns, pairs % nouns)
    near: Numbers = adjective * nouns + noun
    return near


def _uniform(rng: random.Random, many: int, count: int) -> Numbers:
    """`count` integers of 0..many-1 (many < 2**32): the high word of 64 random bits x many."""
    bits = np.frombuffer(rng.randbytes(8 * count), dtype="<u8")
    low = (bits & np.uint64(0xFFFFFFFF)) * np.uint64(many) >> np.uint64(32)
    high = (bits >> np.uint64(32)) * np.uint64(many)
    return ((high + low) >> np.uint64(32)).astype(np.int64)


def _line_costs(meter: Meter, lines: NeedleLines) -> Numbers:
    """Tokens of each line with its newline. Parts that the pre-tokenizer splits are looked up;
    lines without such parts (by the tokenizer, or by their kinds) are tokenized."""
    value_costs = _value_costs(meter, lines.value_kind, lines.values)
    key_costs = None if value_costs is None else _key_costs(meter, lines.key_kind, lines.keys)
    if value_costs is None or key_costs is None:
        return meter.lines([line + "\n" for line in lines])
    fixed = meter.count(f"One of the special magic {lines.value_kind} for") + meter.count(" is:")
    return fixed + key_costs + value_costs


def _key_costs(meter: Meter, kind: Kind, keys: Block) -> Numbers | None:
    """Tokens of each " key", if the pre-tokenizer splits its parts."""
    if kind == "uuids":
        return uuid_tokens(meter, keys.astype(np.uint8, copy=False))
    pair_costs = _pair_tokens(meter) if kind == "words" else None
    if pair_costs is None:
        return None
    adjectives, nouns = pair_costs
    which = keys.astype(np.int64)
    costs: Numbers = adjectives[which // len(nouns)] + nouns[which % len(nouns)]
    return costs


def _value_costs(meter: Meter, kind: Kind, values: Block) -> Numbers | None:
    """Tokens of each " value.\\n", if the pre-tokenizer splits its parts."""
    if kind == "uuids":
        costs = uuid_tokens(meter, values.astype(np.uint8, copy=False))
        return None if costs is None else costs + meter.line(".\n")
    parts = _number_tokens(meter) if kind == "numbers" else None
    if parts is None:
        return None
    first, middle, last = parts
    high, low = np.divmod(values.astype(np.int64), 10_000)
    number: Numbers = first[high] + middle[low // 10] + last[low % 10]
    return number


@lru_cache(maxsize=4)
def _pair_tokens(meter: Meter) -> tuple[Numbers, Numbers] | None:
    """Tokens of " adjective" and of "-noun", if the pre-tokenizer splits between them."""
    if not all(meter.tokenizer.splits_between(f" {a}", "-b") for a in ("a", "big", "wide-eyed")):
        return None
    words = lexicon()
    return (
        meter.spaced(words.adjectives),
        meter.spaced([f"a-{word}" for word in words.nouns]) - meter.count(" a"),
    )


@lru_cache(maxsize=4)
def _number_tokens(meter: Meter) -> tuple[Numbers, Numbers, Numbers] | None:
    """Tokens of " 123", "456" and "7.\\n" of each number " 1234567.\\n", if the pre-tokenizer
    splits between them."""
    split = meter.tokenizer.splits_between
    edges = [(" 123", "4567.\n"), (" 123456", "7.\n")]
    if meter.digits_together is None or not all(split(*edge) for edge in edges):
        return None
    threes = [f"{number:03}" for number in range(1000)]
    return (
        meter.spaced(threes),
        meter.lines([f"{three}\n" for three in threes]) - meter.count("\n"),
        np.array([meter.line(f"{digit}.\n") for digit in range(10)]),
    )
