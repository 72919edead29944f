"""Common words: which ten words of a numbered list occur most often?

Source: RULER (arXiv:2404.06654), section 3 and appendix B, common words extraction; generator
https://github.com/NVIDIA/RULER/blob/main/scripts/data/synthetic/common_words_extraction.py.
MemAgent has no question form for it; the one here is made as its others are (`form="memagent"`).
RULER shows a worked example first (`form="ruler"`).

Ten words stand 30 times each, all others 3 times (below 4,096 tokens: 6 and 1), shuffled and
numbered. Words are wonderwords' nouns, adjectives and verbs; where these are too few (above
some 200,000 tokens), all words are from RULER's list of English words. Worked example:

    context   1. stew 2. train 3. bra 4. train 5. telling 6. stew 7. association 8. train ...
    question  Below is a numbered list of words. In these words, some appear more often than
              others. Memorize the ones that appear most often. Question: What are the 10 most
              common words in the above list?
    golds     train, stew, ... (ten of them)

Differences from RULER, each of which `published=true` takes back: each sample is filled to the
length, short of it by less than one entry of the list, so the last of the other words may stand
fewer than 3 times (there, those of a cell have one number of words, in tens, see
`tasks.haystack.published_cells`); each sample has an order of its own, RULER's one for a cell.
No sample has evidence: the answer is a count over the whole list, and no place of it holds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from core.context import Context
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Json, Match, Problem, Sample
from tasks.corpora.read import Corpora, Words
from tasks.haystack.measure import Meter, meter, too_short
from tasks.haystack.published_cells import SHORT, Cell, published_cell
from tasks.haystack.remembered import RememberedCounts
from tasks.ruler.wordlists import Numbers, WordList, numbering_tokens, shuffled, shuffled_before
from tasks.ruler.words import lexicon
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, Materials, parameters_of, sample_id, sample_rng

INSTRUCTION = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often."
)
ASK = "Question: What are the {common} most common words in the above list?"
ANSWER_PREFIX = " Answer: The top {common} words that appear most often in the list are:"

REPEATS = {False: (30, 3), True: (6, 1)}
EXAMPLE = {False: (40, 10, 3), True: (20, 3, 1)}
"""Short or not -> words, and how often the common and the other ones stand."""

WORD_STEP = 10
"""Words that the published generators add at a time."""

LEAST_ENTRY_TOKENS = 2
LEAST_BLOCK = 64
"""Words are counted so many at a time at least."""


@dataclass(frozen=True, slots=True)
class Hay:
    """A filled haystack. `tokens` is what the list takes, `newline` what the newline after it
    adds; `last` is how often the last of the other words stands."""

    words: Words
    pieces: WordList
    golds: tuple[str, ...]
    tokens: int
    newline: int
    last: int


@dataclass(frozen=True, slots=True)
class CommonWords:
    """`common` words stand `common_repeats` times each, others `other_repeats` times; None
    takes RULER's numbers, which depend on the length. `published` makes cells as the published
    generators do, see above."""

    name: str
    summary: str
    common: int = 10
    common_repeats: int | None = None
    other_repeats: int | None = None
    form: Literal["memagent", "ruler"] = "memagent"
    generation_tokens: int = 120
    published: bool = False
    source: ClassVar[str] = "RULER (arXiv:2404.06654), section 3, common words; PROTOCOL 2.2"
    match: ClassVar[Match] = "all"
    scorer: ClassVar[GoldScorer] = ALL

    def __post_init__(self) -> None:
        for short in (False, True):
            many, few = self._repeats(short)
            if not 1 <= self.common < EXAMPLE[short][0] or not 1 <= few < many:
                raise UsageError(
                    f"{self.name}: got {self.common} common words {many} times and others {few} "
                    "times; expected 1 to 19 words, others at least once and less often"
                )

    @property
    def parameters(self) -> Mapping[str, Json]:
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`. Unit: an entry of the list.

        Raises:
            UsageError: besides, if the lists have too few words.
        """
        index, length, seed = at.index, at.length, at.seed
        tokenizer, corpora = materials.tokenizer, materials.corpora
        rng = sample_rng(self, at)
        cell = self._cell(index, length, seed, tokenizer, corpora) if self.published else Cell()
        ask, prefix = ASK.format(common=self.common), ANSWER_PREFIX.format(common=self.common)
        before = INSTRUCTION + "\n"
        if self.form == "ruler":
            before = self._worked_example(rng, cell.order_rng(rng), length < SHORT) + "\n" + before
        measure = meter(tokenizer)
        around = measure.line_once(before) + measure.count(ask + prefix)
        hay = self._fill(rng, length, around, cell, measure, corpora)
        sources = {"tokenizer": tokenizer.fingerprint, "words": hay.words.fingerprint}
        return Sample(
            id=sample_id(self, at, sources),
            task=self.name,
            index=index,
            problem=Problem(Context(hay.pieces, " "), f"{INSTRUCTION} {ask}"),
            golds=hay.golds,
            match=self.match,
            meta={
                "distinct_words": len(hay.pieces.words),
                "last_word_repeats": hay.last,
                "units": len(hay.pieces.order),
                "context_tokens": hay.tokens,
                "prompt_tokens": around + hay.tokens + hay.newline,
                "ruler_before": before,
                "ruler_after": "\n" + ask,
                "answer_prefix": prefix,
            },
        )

    def _cell(
        self, index: int, length: int, seed: int, tokenizer: Tokenizer, corpora: Corpora
    ) -> Cell:
        return published_cell(
            CommonWords.sample,
            self,
            index,
            length,
            seed,
            tokenizer,
            corpora,
            step=WORD_STEP,
            units=lambda meta: int(meta["distinct_words"]),
        )

    def _repeats(self, short: bool) -> tuple[int, int]:
        many, few = REPEATS[short]
        return self.common_repeats or many, self.other_repeats or few

    def _fill(
        self,
        rng: random.Random,
        length: int,
        around: int,
        cell: Cell,
        measure: Meter,
        corpora: Corpora,
    ) -> Hay:
        """The fullest list of the length, in random order."""
        room = length - self.generation_tokens - around
        repeats = self._repeats(length < SHORT)
        # An entry is two tokens at least, so no more words than these can be needed.
        most = self.common + max(room, 0) // (LEAST_ENTRY_TOKENS * repeats[1]) + 1
        words = plain_words()
        order = shuffled(rng, np.arange(len(words.words)))
        ends = self._ends(words, order, repeats, room, measure)
        if ends[-1] <= room:
            words = corpora.english_words()
            order = shuffled(rng, np.arange(len(words.words)), first=most)
            ends = self._ends(words, order, repeats, room, measure)
        if ends[-1] <= room:
            raise UsageError(
                f"{self.name}: length {length} needs more than the {len(words.words)} words of "
                f"the list of English words, which make {length - room + int(ends[-1])} tokens: "
                "ask for at most that"
            )
        # Which word each entry has, in the order of filling, not of the list.
        many, few = repeats
        others = -(-len(ends) // few)
        times = [many] * self.common + [few] * others
        which = np.repeat(np.arange(self.common + others), times)

        def newline_after(number: int) -> int:
            return measure.newline_after(words.words[order[number]])

        if self.published:
            least = self._entries(cell.step, repeats)
            listed = self._whole_words(cell, which, ends, room, repeats, newline_after)
        else:
            least = self.common * many + 1
            listed = _every_entry(rng, which, ends, room, newline_after)
        if len(listed) < least:
            least = length - room + int(ends[least - 1]) + newline_after(0)
            raise too_short(self.name, length, least, measure.tokenizer)
        which = which[: len(listed)]
        used = _array(words)[order[: int(which[-1]) + 1]]
        return Hay(
            words,
            WordList(used, listed, numbered=True),
            tuple(used[: self.common].tolist()),
            int(ends[len(listed) - 1]),
            newline_after(listed[-1]),
            int(np.count_nonzero(which == which[-1])),
        )

    def _entries(self, words: int, repeats: tuple[int, int]) -> int:
        """Entries of a list of so many words."""
        many, few = repeats
        return self.common * many + max(words - self.common, 0) * few

    def _whole_words(
        self,
        cell: Cell,
        which: Numbers,
        ends: Numbers,
        room: int,
        repeats: tuple[int, int],
        newline_after: Callable[[int], int],
    ) -> Numbers:
        """The entries of as many words as `cell` gives, in its order; none if the fewest do
        not fit."""
        fit = _within(ends, room)
        words = self.common + max(fit - self.common * repeats[0], 0) // repeats[1] + 1
        while (fewer := cell.within(words - 1)) < words:
            words = fewer
            if (entries := self._entries(words, repeats)) <= fit:
                listed = shuffled(random.Random(cell.order_seed), which[:entries])
                if ends[entries - 1] + newline_after(listed[-1]) <= room:
                    return listed
        return which[:0]

    def _ends(
        self,
        words: Words,
        order: Numbers,
        repeats: tuple[int, int],
        room: int,
        measure: Meter,
    ) -> Numbers:
        """Tokens of lists of 1, 2, ... entries, up to one that `room` does not hold, or to the
        last word. Order within a list does not matter: each number comes once in any."""
        many, few = repeats
        costs = WordCosts(words, measure)
        taken = [np.repeat(costs.of(order[: self.common]), many)]
        tokens, entries, place = int(taken[0].sum()), len(taken[0]), self.common
        while place < len(order):
            left = room - tokens - int(numbering_tokens(measure, entries)[-1])
            if left < 0 and place > self.common:
                break
            more = max(left * entries // ((room - left) * few), LEAST_BLOCK)
            taken.append(np.repeat(costs.of(order[place : place + more]), few))
            tokens, entries = tokens + int(taken[-1].sum()), entries + len(taken[-1])
            place += more
        return np.cumsum(np.concatenate(taken)) + numbering_tokens(measure, entries)

    def _worked_example(self, rng: random.Random, order_rng: random.Random, short: bool) -> str:
        """RULER's example before the question: a short list with its answer."""
        total, many, few = EXAMPLE[short]
        words = [plain_words().words[i] for i in rng.sample(range(len(plain_words().words)), total)]
        items = words[: self.common] * many + words[self.common :] * few
        order_rng.shuffle(items)
        ask, prefix = ASK.format(common=self.common), ANSWER_PREFIX.format(common=self.common)
        answer = numbered(words[: self.common])
        return f"{INSTRUCTION}\n{numbered(items)}\n{ask}{prefix} {answer}"


def numbered(words: Sequence[str]) -> str:
    """`1. word 2. word ...`"""
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))


class WordCosts:
    """Tokens of words, each after a space, counted when first asked for."""

    def __init__(self, words: Words, measure: Meter) -> None:
        self._words = words.words
        self._measure = measure
        self._known = _word_tokens(words, measure)

    def of(self, numbers: Numbers) -> Numbers:
        return self._known.of(numbers, self._count).astype(np.int64)

    def _count(self, numbers: Sequence[int]) -> Numbers:
        return self._measure.spaced([self._words[number] for number in numbers])

    def complete(self) -> int:
        """Counts all words ahead; returns how many had not been counted."""
        return self._known.complete(self._count)


@lru_cache(maxsize=8)
def _word_tokens(words: Words, measure: Meter) -> RememberedCounts:
    return RememberedCounts(
        "words after a space", words.fingerprint, len(words.words), measure.tokenizer
    )


@cache
def plain_words() -> Words:
    """wonderwords' nouns, adjectives and verbs: sorted, distinct."""
    lists = lexicon()
    words = {*lists.nouns, *lists.adjectives, *lists.verbs}
    return Words(tuple(sorted(words)), lists.fingerprint)


@lru_cache(maxsize=4)
def _array(words: Words) -> NDArray[np.object_]:
    return np.array(words.words, dtype=object)


def _every_entry(
    rng: random.Random,
    which: Numbers,
    ends: Numbers,
    room: int,
    newline_after: Callable[[int], int],
) -> Numbers:
    """As many entries as fit, in random order."""
    # The last entry is drawn before the others: the newline after it may cost a token.
    drawn = rng.randrange(max(_within(ends, room), 1))
    for last in (drawn, 0):
        entries = _within(ends, room - newline_after(which[last]))
        if last < entries:
            return shuffled_before(rng, which[:entries], last)
    return which[:0]


def _within(ends: Numbers, room: int) -> int:
    """How many entries fit."""
    return int(np.searchsorted(ends, room, side="right"))
