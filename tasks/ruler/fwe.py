"""Frequent words: which three coded words occur most often?

Source: RULER (arXiv:2404.06654), section 3 and appendix B, frequent words extraction; generator
https://github.com/NVIDIA/RULER/blob/main/scripts/data/synthetic/freq_words_extraction.py. The
question's form is MemAgent's (arXiv:2507.02259, section 4).

Coded words are six random letters. The word of rank r stands int(n / r^alpha / zeta(alpha))
times, alpha being 2; rank 1 is the noise word `...`, ranks 2 to 4 are asked for. All are
shuffled and joined by spaces. Worked example (counts with 64 dots: 16, 7, 4, 2, 1, 1, 1):

    context   ... ufnllw ... ... iwshay ... ufnllw rhbtmq ... ... sdwmwo ... ... ufnllw ...
    question  Read the following coded text and track the frequency of each coded word. Find
              the three most frequently appeared coded words. Question: Do not provide any
              explanation. Please ignore the dots '....'. What are the three most frequently
              appeared words in the above coded text?
    golds     ufnllw, iwshay, rhbtmq

Differences from RULER, each of which `published=true` takes back: each sample is filled to the
length, short of it by less than one word, where RULER's fall short by up to 23% (n is one for a
cell, and moves in steps, see `tasks.haystack.published_cells`); so the last step of n may be
taken for the first ranks only. Each sample has an order of its own, RULER's one for a cell. Lengths
with fewer than 46 dots are refused: there the words of ranks 4 and 5 can be as frequent, and
RULER's gold is one of the two. No sample has evidence: the answer is a count over the whole
text, and no place of it holds it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from core.errors import UsageError
from core.types import Match, RulerPrompt
from tasks.corpora.read import Corpora
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.measure import Meter
from tasks.haystack.published_cells import PublishedCell, Steps
from tasks.ruler.wordlists import Numbers, WordList, shuffled, shuffled_before
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates

INSTRUCTION = (
    "Read the following coded text and track the frequency of each coded word. Find the three "
    "most frequently appeared coded words."
)
ASK = (
    "Question: Do not provide any explanation. Please ignore the dots '....'. What are the three "
    "most frequently appeared words in the above coded text?"
)
ANSWER_PREFIX = (
    " Answer: According to the coded text above, the three most frequently appeared words are:"
)
NOISE_WORD = "..."
GOLD_RANKS = slice(1, 4)
"""Ranks 2 to 4, counted from 0."""

TOKENS_A_WORD = 50
"""The vocabulary has a word for so many tokens of the length."""

FIRST_N, N_STEP = 6, 32
"""The published generators start with n = length // 6, and add length // 32 at a time."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words by rank: their tokens after a space, and after how many dots each comes once more."""

    words: Sequence[str]
    costs: Numbers
    every: NDArray[np.float64]
    measure: Meter

    def newline_after(self, rank: int) -> int:
        """What a newline after the word adds."""
        return self.measure.newline_after(self.words[rank])


@dataclass(frozen=True, slots=True)
class FrequentWords(Family[Asked]):
    """`vocabulary`: how many words there are to draw from, the noise word included; None takes
    RULER's, the length // 50. Of these only ranks up to the root of the dots ever occur.
    `published` makes cells as the published generators do, see above."""

    name: str
    summary: str
    alpha: float = 2.0
    vocabulary: int | None = None
    letters: int = 6
    generation_tokens: int = 50
    published: bool = False
    source: ClassVar[str] = "RULER (arXiv:2404.06654), section 3, frequent words; PROTOCOL 2.2"
    match: ClassVar[Match] = "all"
    scorer: ClassVar[GoldScorer] = ALL

    def __post_init__(self) -> None:
        if (
            self.alpha <= 1
            or self.letters < 3
            or not (self.vocabulary is None or self.vocabulary > 4)
        ):
            raise UsageError(
                f"{self.name}: got alpha {self.alpha}, vocabulary {self.vocabulary}, letters "
                f"{self.letters}; expected alpha above 1, at least 5 words and 3 letters"
            )

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        """Units of a cell are dots."""
        return Steps() if self.published else None

    def draw(self, draft: Draft) -> Asked:
        """The prompt; words are drawn when it is known how many fit."""
        prompt = RulerPrompt(INSTRUCTION + " ", "\n" + ASK, ANSWER_PREFIX)
        return Asked(prompt, f"{INSTRUCTION} {ASK}")

    def fill(self, draft: Draft, asked: Asked, room: int) -> Filled:
        """The fullest haystack of the length, in random order. Unit: a coded word."""
        measure = draft.measure
        words = self._draw_words(draft.rng, draft.at.length, room)
        every = np.arange(1, len(words) + 1, dtype=np.float64) ** self.alpha
        coded = Vocabulary(words, measure.spaced(words), every, measure)
        if self.published:
            possible = self._published_dots(draft.at.length)
            order = _whole_steps(draft.cell, possible, coded, room)
            enough = possible[0]
        else:
            order = _every_word(draft.rng, coded, room)
            # From so many dots on, the word of rank 4 is always ahead of that of rank 5.
            enough = ceil(1 / (1 / every[3] - 1 / every[4])) + 1
        counts = np.bincount(order, minlength=len(words))
        if counts[0] < enough:
            least = int(coded.costs @ _counts(coded, enough)) + coded.newline_after(0)
            raise self.too_short(draft.at, room, least, measure.tokenizer.name)
        first, tokens = words[order[0]], int(coded.costs @ counts)
        return Filled(
            WordList(np.array(words, dtype=object), order),
            " ",
            golds=tuple(words[GOLD_RANKS]),
            tokens=tokens + coded.newline_after(order[-1]),
            context_tokens=tokens + measure.count_once(first) - measure.count_once(" " + first),
            units=len(order),
            meta={
                "counts": counts[:5].tolist(),
                "distinct_words": int(np.count_nonzero(counts)),
            },
            cell_units=int(counts[0]),
        )

    def _published_dots(self, length: int) -> Numbers:
        """How many dots there can be, ascending: n / zeta(alpha), n being length // 6 and so many
        steps more or less that the word of rank 4 occurs."""
        from scipy.special import zeta

        step, least = max(length // N_STEP, 1), 4**self.alpha
        # A dot is a token at least, so there are never as many as `length`.
        end = (length + least) * zeta(self.alpha) + step
        n = np.arange(length // FIRST_N % step, end, step)
        dots: Numbers = (n / zeta(self.alpha)).astype(np.int64)
        return dots[dots >= least]

    def _draw_words(self, rng: random.Random, length: int, room: int) -> list[str]:
        """The words by rank, as many as can occur in `room` tokens."""
        size = self.vocabulary or length // TOKENS_A_WORD
        # Each word is a token at least, and ranks 1 to 4 alone take this many for each dot.
        dots = (max(room, 0) + 3) / sum(rank**-self.alpha for rank in (1, 2, 3, 4))
        reached = int(dots ** (1 / self.alpha)) + 2
        words = {NOISE_WORD: None}
        while (missing := max(min(size, reached), 5) - len(words)) > 0:
            text = random_letters(rng, self.letters * missing)
            starts = range(0, len(text), self.letters)
            words |= {text[i : i + self.letters]: None for i in starts}
        return list(words)


def random_letters(rng: random.Random, count: int) -> str:
    """What `rng.choices(string.ascii_lowercase, k=count)` draws, all at once: each letter takes 53
    random bits, from the upper ends of two numbers of 32."""
    high, low = np.frombuffer(rng.randbytes(8 * count), dtype="<u4").reshape(count, 2).T
    share = ((high >> 5) * 2.0**26 + (low >> 6)) / 2.0**53
    return (ord("a") + (share * 26).astype(np.uint8)).tobytes().decode("ascii")


def _every_word(rng: random.Random, coded: Vocabulary, room: int) -> Numbers:
    """The words of the longest text of at most `room` tokens, in random order."""
    # The last word is drawn before the others: the newline after it may cost a token.
    drawn = _weighted(rng, _counts_within(coded, room))
    for last in (drawn, 0):
        counts = _counts_within(coded, room - coded.newline_after(last))
        if counts[last]:
            which = np.repeat(np.arange(len(counts)), counts)
            return shuffled_before(rng, which, int(np.searchsorted(which, last)))
    return np.arange(0)


def _whole_steps(cell: PublishedCell, possible: Numbers, coded: Vocabulary, room: int) -> Numbers:
    """The words of the longest of the possible texts that fits, in the cell's order, with no
    more dots than its first sample has."""
    most = min(_dots_within(coded, room), cell.units)
    for dots in possible[possible <= most][::-1]:
        counts = _counts(coded, dots)
        order = shuffled(random.Random(cell.order_seed), np.repeat(np.arange(len(counts)), counts))
        if coded.costs @ counts + coded.newline_after(order[-1]) <= room:
            return order
    return np.arange(0)


def _counts(coded: Vocabulary, dots: int) -> Numbers:
    """How often each rank occurs with so many dots: rank r int(dots / every[r]) times, which is
    RULER's n = dots x zeta(alpha). Floats are exact here for alpha 2."""
    counts: Numbers = (dots // coded.every).astype(np.int64)
    return counts


def _dots_within(coded: Vocabulary, room: int) -> int:
    """The most noise words of a text of at most `room` tokens."""
    most = max(room, 0) // int(coded.costs[0])
    dots = range(most + 1)
    return bisect_right(dots, max(room, 0), key=lambda n: int(coded.costs @ _counts(coded, n))) - 1


def _counts_within(coded: Vocabulary, room: int) -> Numbers:
    """How often each rank occurs in the longest text of at most `room` tokens.

    The next dot after those that fit brings one more of some further ranks, which are added in
    the order of ranks as far as there is room.
    """
    dots = _dots_within(coded, room)
    counts = _counts(coded, dots)
    left = room - int(coded.costs @ counts)
    for rank in np.flatnonzero(_counts(coded, dots + 1) > counts):
        left -= int(coded.costs[rank])
        if left < 0:
            break
        counts[rank] += 1
    return counts


def _weighted(rng: random.Random, counts: Numbers) -> int:
    """An index, each as likely as its count; 0 if all counts are 0."""
    total = int(counts.sum())
    place = rng.randrange(total) if total else 0
    return int(np.searchsorted(np.cumsum(counts), place, side="right")) if total else 0
