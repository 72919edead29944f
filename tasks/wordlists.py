"""Long lists of words in random order: shuffled at once, rendered a stretch at a time.

At 512K tokens a haystack of coded words has 262,000 of them. Python's own shuffle and a string
object for each would take as long as the tokenizer; here a list is an array of numbers, and
words are joined when they are read.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from tasks.lines import LazyLines

ITEM_BITS = 20
"""Numbers of words stay below 2**20, which leaves 44 bits to shuffle by."""

WORDS_A_PIECE = 256
"""So many words are one piece of a context: a piece for each would cost more than the word."""


def shuffled(rng: random.Random, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """`items` (0 <= item < 2**20) in random order: sorted by 44 random bits, the item itself
    in the bits below. So the order does not depend on how numpy sorts."""
    if len(items) and not 0 <= int(items.min()) <= int(items.max()) < 1 << ITEM_BITS:
        raise ValueError(f"items: got up to {items.max()}, expected 0 <= item < 2**{ITEM_BITS}")
    # The generator itself, which numpy keeps the same in all versions, and not its methods.
    keys = np.random.PCG64(rng.getrandbits(128)).random_raw(len(items)).astype(np.uint64)
    keys <<= np.uint64(ITEM_BITS)
    keys |= items.view(np.uint64)
    keys.sort()
    keys &= np.uint64((1 << ITEM_BITS) - 1)
    return keys.view(np.int64)


class WordList(LazyLines):
    """Words joined by spaces, in pieces of WORDS_A_PIECE. `order` holds indexes of `words`;
    a numbered list reads `1. word 2. word ...`."""

    __slots__ = ("numbered", "order", "words")

    def __init__(
        self, words: NDArray[np.object_], order: NDArray[np.int64], numbered: bool = False
    ) -> None:
        self.words = words
        self.order = order
        self.numbered = numbered

    def __len__(self) -> int:
        return -(-len(self.order) // WORDS_A_PIECE)

    def line(self, index: int) -> str:
        first = index * WORDS_A_PIECE
        words: list[str] = self.words[self.order[first : first + WORDS_A_PIECE]].tolist()
        if self.numbered:
            words = [f"{number}. {word}" for number, word in enumerate(words, first + 1)]
        return " ".join(words)
