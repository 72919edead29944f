"""Which documents of a corpus stand in a haystack: as many as fit, or a given number of them.

Documents are drawn without repetition: the gold ones, the question's other own ones, those that
are near (SQuAD: of the same article), then any. Each is measured under its number, by its
remembered count. Where the haystack is filled to a length, a drawn document that does not fit
is passed over and the next ones are tried, until MOST_PASSED_OVER did not fit. So the haystack
falls short of the length by less than each of the documents that were passed over.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np

from tasks.corpora.read import Pool, Question
from tasks.haystack.measure import Meter
from tasks.haystack.remembered import RememberedCounts

MOST_PASSED_OVER = 8
"""One alone would be a unit, too; but near the end a long one leaves room for several."""

LEAST_BLOCK = 8
"""Documents are drawn and counted so many at a time at least."""


def fill_with_documents(
    rng: random.Random,
    pool: Pool,
    question: Question,
    room: int,
    measure: Meter,
    most_passed_over: int = MOST_PASSED_OVER,
) -> tuple[list[int], int, bool]:
    """As many documents as fit into `room` tokens, but at least the golds, until so many did
    not fit. Returns them in the order of drawing, their tokens with headings and blank lines,
    and whether no more fit (else the corpus is used up)."""
    costs = DocumentCosts(pool, measure)
    drawn = _drawn(rng, pool, question)
    chosen: list[int] = []
    tokens = passed_over = 0
    while block := list(islice(drawn, _about(room - tokens, len(chosen), tokens))):
        for document, own in zip(block, costs.of(block), strict=True):
            more = own + costs.heading(len(chosen) + 1)
            if len(chosen) < len(question.golds) or tokens + more <= room:
                chosen.append(document)
                tokens += more
            elif (passed_over := passed_over + 1) == most_passed_over:
                return chosen, tokens, True
    return chosen, tokens, passed_over > 0 or tokens >= room


def documents_within(
    rng: random.Random, pool: Pool, question: Question, room: int, measure: Meter
) -> int:
    """How many of the first documents drawn fit, none passed over, but at least the golds.
    `rng` is left as it was, to draw the same again."""
    state = rng.getstate()
    chosen, _, _ = fill_with_documents(rng, pool, question, room, measure, most_passed_over=1)
    rng.setstate(state)
    return len(chosen)


def take_documents(
    rng: random.Random, pool: Pool, question: Question, wanted: int, measure: Meter
) -> tuple[list[int], int]:
    """The first `wanted` documents drawn, or all there are; and their tokens."""
    costs = DocumentCosts(pool, measure)
    chosen = list(islice(_drawn(rng, pool, question), wanted))
    headings = sum(costs.heading(number) for number in range(1, len(chosen) + 1))
    return chosen, headings + sum(costs.of(chosen))


def _about(room: int, documents: int, tokens: int) -> int:
    """How many documents may still fit, by those there are."""
    return max(room * documents // max(tokens, 1), LEAST_BLOCK)


def _drawn(rng: random.Random, pool: Pool, question: Question) -> Iterator[int]:
    """The golds, the question's other own documents, then the near ones at random, then the
    rest at random."""
    yield from dict.fromkeys(question.golds + question.own)
    taken = set(question.own)
    near = [document for document in dict.fromkeys(question.near) if document not in taken]
    rng.shuffle(near)
    yield from near
    taken.update(near)
    # A shuffle that is carried only as far as it is asked for.
    moved: dict[int, int] = {}
    last = len(pool.documents)
    for first in range(last):
        other = rng.randrange(first, last)
        document = moved.get(other, other)
        moved[other] = moved.pop(first, first)
        if document not in taken:
            yield document


class DocumentCosts:
    """Tokens of a document under its number, with the blank line after it."""

    def __init__(self, pool: Pool, measure: Meter) -> None:
        self._pool = pool
        self._measure = measure
        self._known = _remembered(pool, measure)

    def heading(self, number: int) -> int:
        """Tokens of `Document {number}`."""
        return self._measure.count(f"Document {number}")

    def of(self, documents: Sequence[int]) -> list[int]:
        """Tokens of each document, from the colon before it to the blank line after it."""
        numbers = np.array(documents, dtype=np.int64)
        tokens: list[int] = self._known.of(numbers, self._count).tolist()
        return tokens

    def _count(self, documents: Sequence[int]) -> list[int]:
        texts = self._pool.documents
        return [self._measure.line_once(f":\n{texts[document]}\n\n") for document in documents]

    def complete(self) -> int:
        """Counts all documents ahead; returns how many had not been counted."""
        return self._known.complete(self._count)


@lru_cache(maxsize=8)
def _remembered(pool: Pool, measure: Meter) -> RememberedCounts:
    return RememberedCounts(
        "documents under a number", pool.fingerprint, len(pool.documents), measure.tokenizer
    )
