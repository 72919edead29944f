"""Questions on documents: RULER-HotpotQA (`ruler_hqa`) and RULER's qa_1 and qa_2.

Sources: RULER (arXiv:2404.06654), section 3, question answering; generator
https://github.com/NVIDIA/RULER/blob/main/scripts/data/synthetic/qa.py. MemAgent
(arXiv:2507.02259), section 4: `ruler_hqa` is the main task there, with the bare question.
GRU-Mem's unbalanced setting (PROTOCOL 2.3) is `gold_within` 0.2 or 0.1.

A question's own documents and others drawn at random from the corpus are numbered in random
order. Worked example (ruler_hqa):

    context   Document 1:
              Ed Wood
              Edward Davis Wood Jr. (October 10, 1924 - December 10, 1978) was ...

              Document 2:
              ...
    question  Were Scott Derrickson and Ed Wood of the same nationality?
    golds     yes

Sample i asks question i of the file. Differences from the published code, and what restores
them: there, the own documents stand at the same places for every question of a length
(`same_places=true`), and the haystack is the whole corpus, however short, when the corpus
is used up (`whole_corpus_at_most=true`; else such a length is refused). `published=true` does
both, and takes one number of documents for a cell (in tens, see
`tasks.haystack.published_cells`). The 128 published questions are those left after a filter that
needs a model (PROTOCOL 2.5).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from core.context import Context
from core.errors import UsageError
from core.types import Evidence, Json, Match, Problem, Sample
from tasks.corpora.read import Pool, Question
from tasks.haystack.lines import LazyLines
from tasks.haystack.measure import Meter, meter, too_short
from tasks.haystack.published_cells import Cell, published_cell
from tasks.questions.drawn_documents import documents_within, fill_with_documents, take_documents
from tasks.scoring import ANY, GoldScorer
from tasks.task import Coordinates, Materials, check_depth, parameters_of, sample_id, sample_rng

ONLY_ANSWER = "Only give me the answer and do not output any other words."
INSTRUCTION = "Answer the question based on the given documents."
BEFORE = f"{INSTRUCTION} {ONLY_ANSWER}\n\nThe following are given documents.\n\n"
AFTER = f"\n\n{INSTRUCTION} {ONLY_ANSWER}\n\nQuestion: "
ANSWER_PREFIX = " Answer:"

PUBLISHED_DOCUMENTS = {
    7_000: 50,
    14_000: 100,
    28_000: 200,
    56_000: 400,
    112_000: 800,
    224_000: 1_600,
    448_000: 3_200,
    896_000: 6_400,
    1_750_000: 12_800,
    3_500_000: 25_600,
}
"""MemAgent's nominal lengths in tokens, and the number of documents that makes them."""

DOCUMENT_STEP = 10
"""Documents that the published generators add at a time."""

FILLING = "2"
"""Part of the ids. 1 stopped at the first document that did not fit."""


class NumberedDocuments(LazyLines):
    """Documents of a pool, each under its number in the haystack."""

    __slots__ = ("order", "pool")

    def __init__(self, pool: Pool, order: Sequence[int]) -> None:
        self.pool = pool
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def line(self, index: int) -> str:
        return heading(index + 1) + self.pool.documents[self.order[index]]


@dataclass(frozen=True, slots=True)
class DocumentQuestions:
    """Questions of one corpus in a haystack of its documents.

    `documents`: None fills the haystack to the length; "published" takes the length as one of
    MemAgent's nominal ones and uses its number of documents; a number is the number.
    `gold_within`: the gold documents stand within this first share of the documents. `depth`:
    the first of them stands at that share (0 to 1), the others where chance puts them.
    `published` makes cells as the published generators do, see above.
    """

    name: str
    summary: str
    corpus: Literal["hotpotqa", "hotpotqa_train", "squad"]
    bare_question: bool = False
    documents: int | Literal["published"] | None = None
    gold_within: float = 1.0
    same_places: bool = False
    whole_corpus_at_most: bool = False
    generation_tokens: int = 32
    depth: float | None = None
    published: bool = False
    source: ClassVar[str] = "RULER (arXiv:2404.06654), section 3, QA; PROTOCOL 2.1, 2.2, 2.3"
    match: ClassVar[Match] = "any"
    scorer: ClassVar[GoldScorer] = ANY

    def __post_init__(self) -> None:
        if not 0 < self.gold_within <= 1:
            raise UsageError(f"{self.name}: gold_within {self.gold_within}, expected 0 < x <= 1")
        check_depth(self.name, self.depth)
        if self.depth is not None and self.gold_within < 1:
            raise UsageError(f"{self.name}: got both a depth and gold_within, expected one")

    @property
    def parameters(self) -> Mapping[str, Json]:
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`. Unit: a document.

        Raises:
            UsageError: besides, if there is no question `index`, or the corpus is used up.
        """
        index, length, seed = at.index, at.length, at.seed
        tokenizer, corpora = materials.tokenizer, materials.corpora
        rng = sample_rng(self, at)
        pool = corpora.questions(self.corpus)
        question = self._question(pool, index)
        after = AFTER + question.question
        measure = meter(tokenizer)
        around = measure.line_once(BEFORE) + measure.count_once(after.lstrip("\n") + ANSWER_PREFIX)
        room = length - self.generation_tokens - around
        # Drawn first: where the documents stand does not depend on how many were looked at.
        places_rng = random.Random(rng.getrandbits(128))
        if self.same_places or self.published:
            places_rng = sample_rng(self, replace(at, index=0))
        cell = Cell()
        if self.published and self.documents is None:
            cell = published_cell(
                DocumentQuestions.sample,
                self,
                index,
                length,
                seed,
                tokenizer,
                corpora,
                step=DOCUMENT_STEP,
                end=len(pool.documents),
            )
        chosen, tokens = self._choose(rng, pool, question, room, length, cell, measure)
        if self.documents is None and tokens > room:
            raise too_short(self.name, length, length - room + tokens, tokenizer)
        order = self._arrange(places_rng, question, chosen)
        pieces = NumberedDocuments(pool, order)
        place_of = {document: place for place, document in enumerate(order)}
        end = pieces[-1].rstrip()
        newlines = measure.line_once(pieces[-1] + "\n\n") - measure.count_once(end)
        sources = {
            "tokenizer": tokenizer.fingerprint,
            self.corpus: pool.fingerprint,
            "filling": FILLING,
        }
        return Sample(
            id=sample_id(self, at, sources),
            task=self.name,
            index=index,
            problem=Problem(
                Context(pieces, "\n\n"),
                question.question if self.bare_question else f"{INSTRUCTION} {question.question}",
            ),
            golds=question.answers,
            match=self.match,
            evidence=tuple(_evidence(pieces, place_of, fact) for fact in question.facts),
            meta={
                "documents": len(order),
                "gold_documents": [place_of[d] + 1 for d in question.golds],
                "depths": [place_of[d] / len(order) for d in question.golds],
                "kind": question.kind,
                "units": len(order),
                "context_tokens": tokens - newlines,
                "prompt_tokens": around + tokens,
                "ruler_before": BEFORE,
                "ruler_after": after,
                "answer_prefix": ANSWER_PREFIX,
            },
        )

    def _question(self, pool: Pool, index: int) -> Question:
        if index >= len(pool.questions):
            raise UsageError(
                f"{self.name}: sample {index} asked for, and the corpus has "
                f"{len(pool.questions)} questions: ask for samples 0 to {len(pool.questions) - 1}"
            )
        return pool.questions[index]

    def _choose(
        self,
        rng: random.Random,
        pool: Pool,
        question: Question,
        room: int,
        length: int,
        cell: Cell,
        measure: Meter,
    ) -> tuple[list[int], int]:
        """The documents of the haystack and their tokens with headings. The golds are always
        among them, the other own ones as far as there is room."""
        if self.documents is None and not self.published:
            chosen, tokens, full = fill_with_documents(rng, pool, question, room, measure)
        else:
            if self.documents is None:
                wanted = cell.within(documents_within(rng, pool, question, room, measure))
            else:
                wanted = self._wanted(length, question)
            chosen, tokens = take_documents(rng, pool, question, wanted, measure)
            full = len(chosen) == wanted
        if full or self.whole_corpus_at_most or self.published:
            return chosen, tokens
        raise UsageError(
            f"{self.name}: length {length} needs more than the {len(pool.documents)} documents "
            f"of the corpus, which make {length - room + tokens} tokens: ask for at most that, "
            f"give a larger {self.corpus} file, or take the whole corpus where it ends, with "
            f"{self.name}@whole_corpus_at_most=true"
        )

    def _wanted(self, length: int, question: Question) -> int:
        wanted = self.documents
        if wanted == "published":
            wanted = PUBLISHED_DOCUMENTS.get(length)
        if wanted is None or wanted < len(question.golds):
            raise UsageError(
                f"{self.name}: length {length}, {wanted} documents; expected at least the "
                f"{len(question.golds)} gold ones, and for published numbers one of the "
                f"lengths {', '.join(map(str, PUBLISHED_DOCUMENTS))}"
            )
        return wanted

    def _arrange(
        self, rng: random.Random, question: Question, chosen: Sequence[int]
    ) -> Sequence[int]:
        """A random order in which the golds stand within the first share of the places, or the
        first of them at the depth."""
        golds = list(question.golds)
        first = max(int(len(chosen) * self.gold_within), len(golds))
        places = rng.sample(range(first), len(golds))
        if self.depth is not None:
            place = min(int(len(chosen) * self.depth), len(chosen) - 1)
            # Where another gold would stand there, the two change places.
            places = [places[0] if other == place else other for other in places]
            places[0] = place
        others = [document for document in chosen if document not in golds]
        rng.shuffle(others)
        for place, document in sorted(zip(places, golds, strict=True)):
            others.insert(place, document)
        return others


def heading(number: int) -> str:
    """The line above a document."""
    return f"Document {number}:\n"


def _evidence(
    pieces: NumberedDocuments, place_of: Mapping[int, int], fact: tuple[int, int, int]
) -> Evidence:
    document, start, end = fact
    place = place_of[document]
    before = len(heading(place + 1))
    text = pieces.pool.documents[document][start:end]
    return Evidence(place, before + start, before + end, text)
