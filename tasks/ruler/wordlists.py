"""Long lists of words in random order: shuffled at once, rendered a stretch at a time.

At 512K tokens a haystack of coded words has 262,000 of them. Python's own shuffle and a string
object for each would take as long as the tokenizer; here a list is an array of numbers, and
words are joined when they are read.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from tasks.haystack.lines import LazyLines
from tasks.haystack.measure import Meter
from tasks.once import once

ITEM_BITS = 20
"""Numbers of words stay below 2**20, which leaves 44 bits to shuffle by."""

WORDS_A_PIECE = 1024
"""So many words are one piece of a context: a piece for each would cost more than the word."""


Numbers = NDArray[np.int64]


def shuffled(rng: random.Random, items: Numbers, first: int | None = None) -> Numbers:
    """`items` (0 <= item < 2**20) in random order: sorted by 44 random bits, the item itself
    in the bits below. So the order does not depend on how numpy sorts. `first`: only so many
    of them, the same as without it."""
    if len(items) and not 0 <= int(items.min()) <= int(items.max()) < 1 << ITEM_BITS:
        raise ValueError(f"items: got up to {items.max()}, expected 0 <= item < 2**{ITEM_BITS}")
    # The generator itself, which numpy keeps the same in all versions, and not its methods.
    keys = np.random.PCG64(rng.getrandbits(128)).random_raw(len(items))
    keys <<= np.uint64(ITEM_BITS)
    keys |= items.view(np.uint64)
    if first is not None and first < len(keys):
        keys = np.partition(keys, first)[:first]
    keys.sort()
    keys &= np.uint64((1 << ITEM_BITS) - 1)
    return keys.view(np.int64)


def shuffled_before(rng: random.Random, items: Numbers, last: int) -> Numbers:
    """`items` in random order, but for the one at `last`, which comes last."""
    return np.append(shuffled(rng, np.delete(items, last)), items[last])


class WordList(LazyLines):
    """Words joined by spaces, in pieces of WORDS_A_PIECE. `order` holds indexes of `words`;
    a numbered list reads `1. word 2. word ...`."""

    __slots__ = ("numbered", "order", "words")

    def __init__(self, words: NDArray[np.object_], order: Numbers, numbered: bool = False) -> None:
        self.words = words
        self.order = order
        self.numbered = numbered

    def __len__(self) -> int:
        return -(-len(self.order) // WORDS_A_PIECE)

    def line(self, index: int) -> str:
        first = index * WORDS_A_PIECE
        words: list[str] = self.words[self.order[first : first + WORDS_A_PIECE]].tolist()
        if not self.numbered:
            return " ".join(words)
        entries = [""] * (2 * len(words))
        entries[::2] = _numbers(len(self.order))[first : first + len(words)]
        entries[1::2] = words
        return " ".join(entries)


def _numbers(count: int) -> list[str]:
    """`1.`, `2.`, ... at least `count` of them."""
    return _numbers_to(1 << (count - 1).bit_length())


@once(2)
def _numbers_to(count: int) -> list[str]:
    return [f"{number}." for number in range(1, count + 1)]


def numbering_tokens(measure: Meter, count: int) -> Numbers:
    """Tokens of all the numbers of lists of 1, 2, ... `count` entries, without the words."""
    return _numbering_tokens(measure, 1 << max(count - 1, 1).bit_length())[:count]


@once(32)
def _numbering_tokens(measure: Meter, count: int) -> Numbers:
    costs = measure.spaced([f"{number}." for number in range(1, count + 1)])
    costs[0] = measure.count("1.")
    return np.cumsum(costs)
