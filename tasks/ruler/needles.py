"""Needle sentences, and the haystack that is made of nothing else.

Lines are kept as numbers (4 bytes a word key or a number, 16 a uuid) and rendered when read;
they are drawn and tokenized in blocks: at 512K tokens a haystack has 23,000 lines.

Source of the uuids: RULER, scripts/data/synthetic/niah.py (`uuid.UUID(int=rng.getrandbits(128),
version=4)`). Drawing here takes the same bits, so a seed's uuids are those of Python's own module.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks.haystack.lines import LazyLines
from tasks.haystack.measure import Meter
from tasks.once import once
from tasks.ruler.words import lexicon

Kind = Literal["words", "numbers", "uuids"]
Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Block = NDArray[np.uint32] | Bytes
"""Drawn keys or values: a number each, or a row of 16 bytes for a uuid."""

LEAST_NUMBER = 10**6
NUMBERS = 9 * 10**6
"""RULER's numbers have seven digits, the first not 0."""

BLOCK_LINES, RENDERED_LINES = 4096, 512
"""Lines are drawn so many at a time, and rendered so many."""

LEAST_LINE_TOKENS = 16
"""A guess at a needle line's tokens, by which enough of them are drawn."""

FIRST_LINES = 8
"""Lines that are tokenized to guess how many fit."""

UUID_LETTERS = 36
PARTS = (0, 8, 12, 16, 20, 32)
"""Hexadecimal digits at which a uuid's parts begin, between which hyphens stand, and their end."""


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


@dataclass(frozen=True, slots=True)
class LineKinds:
    """What random needle lines are made of. No key is in `excluded`; of word keys the share
    `near_misses` (0 to 1) has one of the two words of such a key."""

    key: Kind
    value: Kind
    excluded: Collection[str] = ()
    near_misses: float = 0.0

    def draw(self, rng: random.Random, count: int) -> NeedleLines:
        """So many random lines."""
        keys = _draw_keys(self, rng, count)
        return NeedleLines(self.key, self.value, keys, _draw_block(self.value, rng, count))


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
        return self.part(index, index + 1).render()[0]

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), RENDERED_LINES):
            yield from self.part(first, first + RENDERED_LINES).render()

    def part(self, first: int, end: int) -> NeedleLines:
        """The lines from `first` up to `end`."""
        part = slice(first, end)
        return NeedleLines(self.key_kind, self.value_kind, self.keys[part], self.values[part])

    def render(self, ending: str = "") -> list[str]:
        """All lines, each with the ending."""
        keys, values = _texts(self.key_kind, self.keys), _texts(self.value_kind, self.values)
        start, ending = f"One of the special magic {self.value_kind} for ", f".{ending}"
        return [
            f"{start}{key} is: {value}{ending}" for key, value in zip(keys, values, strict=True)
        ]


def fill_with_needles(
    rng: random.Random, kinds: LineKinds, room: int, meter: Meter, least: int
) -> tuple[NeedleLines, Numbers]:
    """As many random needle lines as fit into `room` tokens, newlines included, but at least
    `least` even if they do not fit; and the tokens of the first 1, 2, ... of them."""
    lines: list[NeedleLines] = []
    costs: list[Numbers] = []
    used = count = 0
    while True:
        block = min(BLOCK_LINES, max(room - used, 0) // LEAST_LINE_TOKENS + least)
        drawn = kinds.draw(rng, block)
        fitting = _fitting(meter, drawn, room - used, min(block, least - count))
        lines.append(drawn.part(0, len(fitting)))
        costs.append(fitting)
        used += int(fitting.sum())
        count += len(fitting)
        if len(fitting) < block:
            break
    keys, values = ([getattr(part, kind) for part in lines] for kind in ("keys", "values"))
    whole = NeedleLines(kinds.key, kinds.value, np.concatenate(keys), np.concatenate(values))
    return whole, np.cumsum(np.concatenate(costs))


def _fitting(meter: Meter, lines: NeedleLines, room: int, least: int) -> Numbers:
    """Tokens of each of the first lines that fit, at least `least`. Lines are tokenized in order,
    and few more than are needed."""
    costs = np.empty(0, dtype=np.int64)
    fits = 0
    while fits == len(costs) < len(lines):
        left = room - int(costs.sum())
        about = int(left / costs.mean()) + 1 if fits else FIRST_LINES
        end = fits + max(about, least - fits, 1)
        measured = meter.lines(lines.part(fits, end).render("\n"))
        costs = np.append(costs, measured)
        fits += max(
            int(np.searchsorted(np.cumsum(measured), left, side="right")),
            min(len(measured), least - fits),
        )
    return costs[:fits]


def _texts(kind: Kind, block: Block) -> list[str]:
    if kind == "uuids":
        return uuid_texts(block.astype(np.uint8, copy=False))
    if kind == "numbers":
        return list(map(str, block.tolist()))
    adjectives, nouns = _halves()
    which = np.divmod(block, len(nouns))
    pairs = zip(adjectives[which[0]].tolist(), nouns[which[1]].tolist(), strict=True)
    return [f"{adjective}-{noun}" for adjective, noun in pairs]


@once(1)
def _halves() -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Adjectives and nouns, to be taken many at a time."""
    return np.array(lexicon().adjectives, dtype=object), np.array(lexicon().nouns, dtype=object)


def _draw_block(kind: Kind, rng: random.Random, count: int) -> Block:
    if kind == "uuids":
        return draw_uuids(rng, count)
    if kind == "words":
        return _uniform(rng, lexicon().pairs, count).astype(np.uint32)
    return (_uniform(rng, NUMBERS, count) + LEAST_NUMBER).astype(np.uint32)


def _draw_keys(kinds: LineKinds, rng: random.Random, count: int) -> Block:
    drawn = _draw_block(kinds.key, rng, count)
    if kinds.key != "words":
        return drawn
    pairs = drawn.astype(np.int64)
    banned = {number for text in kinds.excluded for number in lexicon().pair_numbers(text)}
    if kinds.near_misses:
        pairs = _with_near_misses(rng, pairs, sorted(banned), kinds.near_misses)
    for place in np.flatnonzero(np.isin(pairs, list(banned))):
        while int(pairs[place]) in banned:
            pairs[place] = (pairs[place] + 1) % lexicon().pairs
    return pairs.astype(np.uint32)


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


# -- uuids -----------------------------------------------------------------------------------


def draw_uuids(rng: random.Random, count: int) -> Bytes:
    """`count` random uuids of version 4: a row of 16 bytes each, the first one first."""
    rows = np.frombuffer(rng.randbytes(16 * count), dtype=np.uint8).reshape(count, 16)
    rows = rows[:, ::-1].copy()
    rows[:, 6] = rows[:, 6] & 0x0F | 0x40
    rows[:, 8] = rows[:, 8] & 0x3F | 0x80
    return rows


def uuid_texts(rows: Bytes) -> list[str]:
    """The uuids as `str(uuid.UUID(...))` writes them."""
    digits = np.frombuffer(rows.tobytes().hex().encode(), dtype=np.uint8).reshape(len(rows), 32)
    letters = np.full((len(rows), UUID_LETTERS), ord("-"), dtype=np.uint8)
    for hyphens, (start, end) in enumerate(pairwise(PARTS)):
        letters[:, start + hyphens : end + hyphens] = digits[:, start:end]
    text = letters.tobytes().decode("ascii")
    return [text[start : start + UUID_LETTERS] for start in range(0, len(text), UUID_LETTERS)]
