"""Which documents of a corpus stand in a haystack: as many as fit, or a given number of them.

Documents are drawn without repetition: the gold ones, the question's other own ones, those that
are near (SQuAD: of the same article), then any. Each is measured under its number; its tokens
are counted when it is first drawn. Where the haystack is filled to a length, a drawn document
that does not fit is passed over and the next ones are tried, until MOST_PASSED_OVER did not fit.
So the haystack falls short of the length by less than each of those that were passed over.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tasks.corpora.read import Pool, Question
from tasks.haystack.measure import Meter
from tasks.once import once

MOST_PASSED_OVER = 8
"""One alone would be a unit, too; but near the end a long one leaves room for several."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Documents for a question, drawn with `rng`."""

    rng: random.Random
    pool: Pool
    question: Question
    measure: Meter

    def fill(
        self, room: int, most_passed_over: int = MOST_PASSED_OVER
    ) -> tuple[list[int], int, bool]:
        """As many documents as fit into `room` tokens, but at least the golds, until so many did
        not fit. Returns them in the order of drawing, their tokens with headings and blank
        lines, and whether no more fit (else the corpus is used up)."""
        chosen: list[int] = []
        tokens = passed_over = 0
        for document in self.documents():
            more = self._tokens(document, len(chosen) + 1)
            if len(chosen) < len(self.question.golds) or tokens + more <= room:
                chosen.append(document)
                tokens += more
            elif (passed_over := passed_over + 1) == most_passed_over:
                break
        return chosen, tokens, passed_over > 0 or tokens >= room

    def within(self, room: int) -> int:
        """How many of the first documents fit, none passed over, but at least the golds. The
        next call draws the same again."""
        state = self.rng.getstate()
        chosen, _, _ = self.fill(room, most_passed_over=1)
        self.rng.setstate(state)
        return len(chosen)

    def take(self, wanted: int) -> tuple[list[int], int]:
        """The first `wanted` documents, or all there are; and their tokens."""
        chosen = list(islice(self.documents(), wanted))
        return chosen, sum(self._tokens(d, number) for number, d in enumerate(chosen, 1))

    def documents(self) -> Iterator[int]:
        """The golds, the question's other own documents, then the near ones at random, then the
        rest at random."""
        question, rng = self.question, self.rng
        yield from dict.fromkeys(question.golds + question.own)
        taken = set(question.own)
        near = [document for document in dict.fromkeys(question.near) if document not in taken]
        rng.shuffle(near)
        yield from near
        taken.update(near)
        # A shuffle that is carried only as far as it is asked for.
        moved: dict[int, int] = {}
        last = len(self.pool.documents)
        for first in range(last):
            other = rng.randrange(first, last)
            document = moved.get(other, other)
            moved[other] = moved.pop(first, first)
            if document not in taken:
                yield document

    def _tokens(self, document: int, number: int) -> int:
        """Tokens of a document under its number, with the blank line after it."""
        known = _known_tokens(self.pool, self.measure)
        # From the colon before it on. Two threads may both count it: they find the same.
        if not known[document]:
            known[document] = self.measure.line_once(f":\n{self.pool.documents[document]}\n\n")
        return known[document] + self.measure.count(f"Document {number}")


@once(8)
def _known_tokens(pool: Pool, measure: Meter) -> array[int]:
    """Tokens of the documents that were drawn so far, 0 for the others."""
    return array("l", bytes(array("l").itemsize * len(pool.documents)))
