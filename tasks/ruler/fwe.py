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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from core.context import Context
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Json, Match, Problem, Sample
from tasks.corpora.read import Corpora
from tasks.haystack.measure import Meter, meter, too_short
from tasks.haystack.published_cells import Cell, published_cell
from tasks.ruler.wordlists import Numbers, WordList, shuffled, shuffled_before
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, Materials, parameters_of, sample_id, sample_rng

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
class Hay:
    """A filled haystack. `counts[r]` is how often the word of rank r + 1 occurs; `tokens` is
    what the words take, each after a space, and `newline` what the newline after them adds."""

    pieces: WordList
    golds: tuple[str, ...]
    counts: NDArray[np.int64]
    tokens: int
    newline: int


@dataclass(frozen=True, slots=True)
class FrequentWords:
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

    @property
    def parameters(self) -> Mapping[str, Json]:
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`. Unit: a coded word."""
        index, length, seed = at.index, at.length, at.seed
        tokenizer, corpora = materials.tokenizer, materials.corpora
        rng = sample_rng(self, at)
        measure = meter(tokenizer)
        around = measure.count(INSTRUCTION) + measure.count(ASK + ANSWER_PREFIX)
        cell = self._cell(index, length, seed, tokenizer, corpora) if self.published else Cell()
        hay = self._fill(rng, length, around, cell, measure)
        first = hay.pieces.line(0).partition(" ")[0]
        sources = {"tokenizer": tokenizer.fingerprint}
        return Sample(
            id=sample_id(self, at, sources),
            task=self.name,
            index=index,
            problem=Problem(Context(hay.pieces, " "), f"{INSTRUCTION} {ASK}"),
            golds=hay.golds,
            match=self.match,
            meta={
                "counts": hay.counts[:5].tolist(),
                "distinct_words": int(np.count_nonzero(hay.counts)),
                "units": int(hay.counts.sum()),
                "context_tokens": hay.tokens
                + measure.count_once(first)
                - measure.count_once(" " + first),
                "prompt_tokens": around + hay.tokens + hay.newline,
                "ruler_before": INSTRUCTION + " ",
                "ruler_after": "\n" + ASK,
                "answer_prefix": ANSWER_PREFIX,
            },
        )

    def _cell(
        self, index: int, length: int, seed: int, tokenizer: Tokenizer, corpora: Corpora
    ) -> Cell:
        """Units are dots."""
        make = FrequentWords.sample
        return published_cell(
            make, self, index, length, seed, tokenizer, corpora, units=lambda m: int(m["counts"][0])
        )

    def _fill(
        self, rng: random.Random, length: int, around: int, cell: Cell, measure: Meter
    ) -> Hay:
        """The fullest haystack of the length, in random order."""
        room = length - self.generation_tokens - around
        words = self._draw_words(rng, length, room)
        costs = measure.spaced(words)
        every = np.arange(1, len(words) + 1, dtype=np.float64) ** self.alpha

        def newline_after(word: int) -> int:
            return measure.newline_after(words[word])

        if self.published:
            possible = self._published_dots(length)
            order = _whole_steps(cell, possible, costs, every, room, newline_after)
            enough = possible[0]
        else:
            order = _every_word(rng, costs, every, room, newline_after)
            # From so many dots on, the word of rank 4 is always ahead of that of rank 5.
            enough = ceil(1 / (1 / every[3] - 1 / every[4])) + 1
        counts = np.bincount(order, minlength=len(words))
        if counts[0] < enough:
            least = int(costs @ (enough // every).astype(np.int64)) + newline_after(0)
            raise too_short(self.name, length, length - room + least, measure.tokenizer)
        return Hay(
            WordList(np.array(words, dtype=object), order),
            tuple(words[GOLD_RANKS]),
            counts,
            int(costs @ counts),
            newline_after(order[-1]),
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


def _every_word(
    rng: random.Random,
    costs: Numbers,
    every: NDArray[np.float64],
    room: int,
    newline_after: Callable[[int], int],
) -> Numbers:
    """The words of the longest text of at most `room` tokens, in random order."""
    # The last word is drawn before the others: the newline after it may cost a token.
    drawn = _weighted(rng, _counts_within(costs, every, room))
    for last in (drawn, 0):
        counts = _counts_within(costs, every, room - newline_after(last))
        if counts[last]:
            which = np.repeat(np.arange(len(every)), counts)
            return shuffled_before(rng, which, int(np.searchsorted(which, last)))
    return np.arange(0)


def _whole_steps(
    cell: Cell,
    possible: Numbers,
    costs: Numbers,
    every: NDArray[np.float64],
    room: int,
    newline_after: Callable[[int], int],
) -> Numbers:
    """The words of the longest of the possible texts that fits, in the cell's order, with no
    more dots than its first sample has."""
    most = min(_dots_within(costs, every, room), cell.units)
    for dots in possible[possible <= most][::-1]:
        counts = (dots // every).astype(np.int64)
        which = np.repeat(np.arange(len(every)), counts)
        order = shuffled(random.Random(cell.order_seed), which)
        if costs @ counts + newline_after(order[-1]) <= room:
            return order
    return np.arange(0)


def _dots_within(costs: Numbers, every: NDArray[np.float64], room: int) -> int:
    """The most noise words of a text of at most `room` tokens. With them, rank r occurs
    int(dots / every[r]) times: that is RULER's n = dots x zeta(alpha). Floats are exact here
    for alpha 2."""

    def tokens(dots: int) -> int:
        return int(costs @ (dots // every).astype(np.int64))

    most = max(room, 0) // int(costs[0])
    return bisect_right(range(most + 1), max(room, 0), key=tokens) - 1


def _counts_within(costs: Numbers, every: NDArray[np.float64], room: int) -> Numbers:
    """How often each rank occurs in the longest text of at most `room` tokens.

    The next dot after those that fit brings one more of some further ranks, which are added in
    the order of ranks as far as there is room.
    """
    dots = _dots_within(costs, every, room)
    counts: Numbers = (dots // every).astype(np.int64)
    left = room - int(costs @ counts)
    for rank in np.flatnonzero((dots + 1) // every > counts):
        left -= int(costs[rank])
        if left < 0:
            break
        counts[rank] += 1
    return counts


def _weighted(rng: random.Random, counts: NDArray[np.int64]) -> int:
    """An index, each as likely as its count; 0 if all counts are 0."""
    total = int(counts.sum())
    place = rng.randrange(total) if total else 0
    return int(np.searchsorted(np.cumsum(counts), place, side="right")) if total else 0
