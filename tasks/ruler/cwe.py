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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from core.errors import UsageError
from core.types import Match, RulerPrompt
from tasks.corpora.read import Corpora, Words
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.measure import Meter
from tasks.haystack.published_cells import SHORT, PublishedCell, Steps
from tasks.once import once
from tasks.ruler.wordlists import Numbers, WordList, numbering_tokens, shuffled, shuffled_before
from tasks.ruler.words import lexicon
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates

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


@dataclass(frozen=True, slots=True)
class Drawn:
    """Words in random order: the common ones first, then the others. `which[i]` is the word of
    entry i, in the order of filling, `ends[i]` the tokens of a list of the first i + 1 entries,
    in any order."""

    words: Words
    order: Numbers
    which: Numbers
    ends: Numbers


@dataclass(frozen=True, slots=True)
class CommonWords(Family[Asked]):
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

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        """Units of a cell are different words."""
        return Steps(WORD_STEP) if self.published else None

    def draw(self, draft: Draft) -> Asked:
        """The prompt; words are drawn when it is known how many fit."""
        ask, prefix = ASK.format(common=self.common), ANSWER_PREFIX.format(common=self.common)
        before = INSTRUCTION + "\n"
        if self.form == "ruler":
            before = self._worked_example(draft) + "\n" + before
        return Asked(RulerPrompt(before, "\n" + ask, prefix), f"{INSTRUCTION} {ask}")

    def fill(self, draft: Draft, asked: Asked, room: int) -> Filled:
        """The fullest list of the length, in random order. Unit: an entry.

        Raises:
            UsageError: the lists have too few words.
        """
        measure, repeats = draft.measure, self._repeats(draft.at.length < SHORT)
        drawn = self._draw_words(draft, room, repeats)

        def newline_after(number: int) -> int:
            return measure.newline_after(drawn.words.words[drawn.order[number]])

        if self.published:
            least = self._entries(draft.cell.steps.size, repeats)
            listed = self._whole_words(draft.cell, drawn, room, repeats, newline_after)
        else:
            least = self.common * repeats[0] + 1
            listed = _every_entry(draft.rng, drawn, room, newline_after)
        if len(listed) < least:
            needed = int(drawn.ends[least - 1]) + newline_after(0)
            raise self.too_short(draft.at, room, needed, measure.tokenizer.name)
        which = drawn.which[: len(listed)]
        used = _array(drawn.words)[drawn.order[: int(which[-1]) + 1]]
        tokens = int(drawn.ends[len(listed) - 1])
        return Filled(
            WordList(used, listed, numbered=True),
            " ",
            golds=tuple(used[: self.common].tolist()),
            tokens=tokens + newline_after(listed[-1]),
            context_tokens=tokens,
            units=len(listed),
            meta={
                "distinct_words": len(used),
                "last_word_repeats": int(np.count_nonzero(which == which[-1])),
            },
            sources={"words": drawn.words.fingerprint},
            cell_units=len(used),
        )

    def _repeats(self, short: bool) -> tuple[int, int]:
        many, few = REPEATS[short]
        return self.common_repeats or many, self.other_repeats or few

    def _draw_words(self, draft: Draft, room: int, repeats: tuple[int, int]) -> Drawn:
        """More words than `room` tokens hold, of the shorter of the two lists that has them."""
        # An entry is two tokens at least, so no more words than these can be needed.
        most = self.common + max(room, 0) // (LEAST_ENTRY_TOKENS * repeats[1]) + 1
        for words in (plain_words, draft.corpora.english_words):
            order = shuffled(draft.rng, np.arange(len(words().words)), first=most)
            drawn = self._drawn(draft.measure, words(), order, room, repeats)
            if drawn.ends[-1] > room:
                return drawn
        length = draft.at.length
        raise UsageError(
            f"{self.name}: length {length} needs more than the {len(drawn.words.words)} words of "
            f"the list of English words, which make {length - room + int(drawn.ends[-1])} tokens: "
            "ask for at most that"
        )

    def _drawn(
        self, measure: Meter, words: Words, order: Numbers, room: int, repeats: tuple[int, int]
    ) -> Drawn:
        """So many entries that they do not fit, or all."""
        times = np.full(len(order), repeats[1])
        times[: self.common] = repeats[0]
        which = np.repeat(np.arange(len(order)), times)
        word_ends = np.cumsum(_word_tokens(words, measure)[order][which])
        # Numbers are tokenized as far as they are needed.
        entries = self._entries(self.common + WORD_STEP, repeats)
        while True:
            numbers = numbering_tokens(measure, min(entries, len(word_ends)))
            ends = word_ends[: len(numbers)] + numbers
            if ends[-1] > room or len(ends) == len(word_ends):
                return Drawn(words, order, which, ends)
            entries *= 2

    def _entries(self, words: int, repeats: tuple[int, int]) -> int:
        """Entries of a list of so many words."""
        many, few = repeats
        return self.common * many + max(words - self.common, 0) * few

    def _whole_words(
        self,
        cell: PublishedCell,
        drawn: Drawn,
        room: int,
        repeats: tuple[int, int],
        newline_after: Callable[[int], int],
    ) -> Numbers:
        """The entries of as many words as `cell` gives, in its order; none if the fewest do
        not fit."""
        fit = _within(drawn.ends, room)
        words = self.common + max(fit - self.common * repeats[0], 0) // repeats[1] + 1
        while (fewer := cell.within(words - 1)) < words:
            words = fewer
            if (entries := self._entries(words, repeats)) <= fit:
                listed = shuffled(random.Random(cell.order_seed), drawn.which[:entries])
                if drawn.ends[entries - 1] + newline_after(listed[-1]) <= room:
                    return listed
        return drawn.which[:0]

    def _worked_example(self, draft: Draft) -> str:
        """RULER's example before the question: a short list with its answer."""
        total, many, few = EXAMPLE[draft.at.length < SHORT]
        every = plain_words().words
        words = [every[i] for i in draft.rng.sample(range(len(every)), total)]
        items = words[: self.common] * many + words[self.common :] * few
        draft.cell.order_rng(draft.rng).shuffle(items)
        ask, prefix = ASK.format(common=self.common), ANSWER_PREFIX.format(common=self.common)
        answer = numbered(words[: self.common])
        return f"{INSTRUCTION}\n{numbered(items)}\n{ask}{prefix} {answer}"


def numbered(words: Sequence[str]) -> str:
    """`1. word 2. word ...`"""
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))


@once(8)
def _word_tokens(words: Words, measure: Meter) -> Numbers:
    """Tokens of each word after a space."""
    return measure.spaced(words.words)


@once(1)
def plain_words() -> Words:
    """wonderwords' nouns, adjectives and verbs: sorted, distinct."""
    lists = lexicon()
    words = {*lists.nouns, *lists.adjectives, *lists.verbs}
    return Words(tuple(sorted(words)), lists.fingerprint)


@once(4)
def _array(words: Words) -> NDArray[np.object_]:
    return np.array(words.words, dtype=object)


def _every_entry(
    rng: random.Random, drawn: Drawn, room: int, newline_after: Callable[[int], int]
) -> Numbers:
    """As many entries as fit, in random order."""
    # The last entry is drawn before the others: the newline after it may cost a token.
    place = rng.randrange(max(_within(drawn.ends, room), 1))
    for last in (place, 0):
        entries = _within(drawn.ends, room - newline_after(drawn.which[last]))
        if last < entries:
            return shuffled_before(rng, drawn.which[:entries], last)
    return drawn.which[:0]


def _within(ends: Numbers, room: int) -> int:
    """How many entries fit."""
    return int(np.searchsorted(ends, room, side="right"))
