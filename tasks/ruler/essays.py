"""The essay haystack: Paul Graham's essays cut to a number of words, needles between sentences.

Source: RULER, scripts/data/synthetic/niah.py (`type_haystack: essay`); PROTOCOL 2.2. The essays
are one list of words, repeated when the length asks for more than there are (MemAgent's copy
stops there: above some 690,000 tokens; `Steps.end`). A needle goes after sentence
int(sentences x depth / 100), the depths being different ones of 40 evenly spaced percentages.

Differences from RULER, for good: sentences end at `.`, `!` or `?` before a capital, with a short
list of abbreviations, where RULER has a trained splitter (punkt) and needs to download it. RULER
puts a space before a needle at depth 0; here there is none.

Example: 5 sentences, depth 41 -> the needle stands between sentences 2 and 3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import numpy as np
from numpy.typing import NDArray

from tasks.corpora.read import Essays
from tasks.haystack.family import Draft
from tasks.haystack.lines import Inserted, LazyLines
from tasks.haystack.measure import Meter, edge_tokens
from tasks.once import once

DEPTHS = tuple(round(step * 100 / 39) for step in range(40))
"""RULER's depths, in percent."""

_ENDING = re.compile(r"[.!?][\"')\]\u2019\u201d]*$")
_STARTING = re.compile(r"[\"'(\[\u2018\u201c]*[A-Z0-9]")
_ABBREVIATION = re.compile(r"(?:(?:Mr|Mrs|Ms|Dr|St|vs|etc|cf|e\.g|i\.e|U\.S|Inc|Co)|[A-Z])\.$")


class EssaySentences(LazyLines):
    """The sentences of the first `words` words of the essays, repeated without end."""

    __slots__ = ("_count", "_essays", "_sentences", "_starts", "words")

    def __init__(self, essays: Essays, words: int) -> None:
        self._essays = essays
        self._starts = sentence_starts(essays, _enough(essays, words))
        self._sentences = _sentences(essays, _enough(essays, words))
        self.words = words
        rounds, rest = divmod(words, len(essays.words))
        self._count = rounds * len(self._starts) + bisect_left(self._starts, rest)

    def __len__(self) -> int:
        return self._count

    def line(self, index: int) -> str:
        rounds, sentence = divmod(index, len(self._sentences))
        text = self._sentences[sentence]
        if index + 1 < self._count:
            return text
        left = self.words - rounds * len(self._essays.words) - self._starts[sentence]
        return " ".join(text.split(" ")[:left])

    def __iter__(self) -> Iterator[str]:
        whole = chain.from_iterable(repeat(self._sentences))
        yield from islice(whole, self._count - 1)
        yield self.line(self._count - 1)


@dataclass(frozen=True, slots=True)
class EssayHay:
    """A filled haystack: for each needle its piece and its depth (share of the sentences before
    it), the number of words, and the tokens with the newline after the context."""

    pieces: Inserted
    places: Sequence[int]
    depths: Sequence[float]
    words: int
    tokens: int


def fill_with_essays(
    draft: Draft, needles: Sequence[str], room: int, pinned: tuple[int, float] | None
) -> EssayHay:
    """As many words as fit into `room` tokens beside the needles, and of these so many as the
    cell gives; or the least number of words if they do not fit. `pinned`: a needle, and the
    share of the sentences that it shall have before it."""
    essays, meter, cell = draft.corpora.essays(), draft.measure, draft.cell
    order, percents = _order(draft, len(needles), pinned)
    hidden = sum(meter.count_once(" " + needle) for needle in needles)
    # Three words more than fit, then back: the newline after the last word may cost a token,
    # and the first piece has no space before it.
    words = cell.within(_words_within(essays, meter, room - hidden) + 3)
    while True:
        sentences = EssaySentences(essays, words)
        before = [int(len(sentences) * percent / 100) for percent in percents]
        places = [point + earlier for earlier, point in enumerate(before)]
        inserted = {p: needles[i] for p, i in zip(places, order, strict=True)}
        pieces = Inserted(sentences, inserted)
        edge = edge_tokens(meter, pieces[0].split(" ", 1)[0], pieces[-1].rsplit(" ", 1)[-1])
        tokens = hidden + _tokens(essays, meter, words) + edge
        fewer = cell.within(words - 1)
        if tokens <= room or fewer >= words:
            break
        words = fewer
    rank = [order.index(needle) for needle in range(len(needles))]
    depths = [before[i] / len(sentences) for i in rank]
    return EssayHay(pieces, [places[i] for i in rank], depths, words, tokens)


def _order(
    draft: Draft, needles: int, pinned: tuple[int, float] | None
) -> tuple[list[int], list[float]]:
    """The needles in the order in which they stand, and the percentages of their depths."""
    depths: list[float] = sorted(draft.rng.sample(DEPTHS, needles))
    order = list(range(needles))
    draft.cell.order_rng(draft.rng).shuffle(order)
    if pinned is None:
        return order, depths
    percent = dict(zip(order, depths, strict=True)) | {pinned[0]: 100 * pinned[1]}
    order.sort(key=percent.__getitem__)
    return order, [percent[needle] for needle in order]


@once(32)
def _sentences(essays: Essays, count: int) -> list[str]:
    """The sentences of the first `count` words. All of them take as much memory as the text."""
    starts = sentence_starts(essays, count)
    ends = [*starts[1:], count]
    return [" ".join(essays.words[a:b]) for a, b in zip(starts, ends, strict=True)]


def _enough(essays: Essays, words: int) -> int:
    """The next power of two, or all: short haystacks do not wait for the end of the essays."""
    return min(1 << max(words - 1, 0).bit_length(), len(essays.words))


@once(32)
def sentence_starts(essays: Essays, count: int | None = None) -> list[int]:
    """Indexes of the words that sentences begin with, of the first `count` words or all."""
    words = essays.words[:count]
    return [0] + [
        i
        for i in range(1, len(words))
        if _ENDING.search(words[i - 1])
        and _STARTING.match(words[i])
        and not _ABBREVIATION.search(words[i - 1])
    ]


@once(32)
def _ends(essays: Essays, meter: Meter, count: int) -> NDArray[np.int64]:
    """Tokens of the first n words, each after a space, n up to `count`; index 0 is no word."""
    number: dict[str, int] = {}
    words = [number.setdefault(word, len(number)) for word in essays.words[:count]]
    return np.cumsum(np.append(0, meter.spaced(list(number))[words]))


def _tokens(essays: Essays, meter: Meter, words: int) -> int:
    ends = _ends(essays, meter, _enough(essays, words))
    rounds, rest = divmod(words, len(essays.words))
    return rounds * int(ends[-1]) + int(ends[rest])


def _words_within(essays: Essays, meter: Meter, tokens: int) -> int:
    # A word is at least a token.
    ends = _ends(essays, meter, _enough(essays, tokens + 1))
    rounds, rest = divmod(max(tokens, 0), int(ends[-1]))
    return rounds * len(essays.words) + int(np.searchsorted(ends, rest, side="right")) - 1
