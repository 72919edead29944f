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

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from core.errors import UsageError
from core.types import Evidence, Match, RulerPrompt
from tasks.corpora.read import Corpora, Pool, Question
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.lines import LazyLines
from tasks.haystack.published_cells import Steps
from tasks.questions.drawn_documents import Drawing
from tasks.scoring import ANY, GoldScorer
from tasks.task import Coordinates, check_depth, sample_rng

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
"""How documents are chosen; part of the ids, another number where that is another way."""


class Numbered(LazyLines):
    """Documents, each under its number in the haystack."""

    __slots__ = ()

    def document(self, index: int) -> str:
        """The document at `index` without its number."""
        raise NotImplementedError

    def line(self, index: int) -> str:
        return heading(index + 1) + self.document(index)


class NumberedDocuments(Numbered):
    """Documents of a pool; `order` holds their numbers there."""

    __slots__ = ("order", "pool")

    def __init__(self, pool: Pool, order: Sequence[int]) -> None:
        self.pool = pool
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def document(self, index: int) -> str:
        return self.pool.documents[self.order[index]]


@dataclass(frozen=True, slots=True)
class AskedQuestion(Asked):
    """A question of a pool. `places`: draws where its documents stand."""

    pool: Pool
    asked: Question
    places: random.Random


@dataclass(frozen=True, slots=True)
class DocumentQuestions(Family[AskedQuestion]):
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
    def fills_length(self) -> bool:
        return self.documents is None

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        if not self.published or not self.fills_length:
            return None
        return Steps(DOCUMENT_STEP, len(corpora.questions(self.corpus).documents))

    def draw(self, draft: Draft) -> AskedQuestion:
        """The question of the sample's index, and the generator of its documents' places."""
        pool, index = draft.corpora.questions(self.corpus), draft.at.index
        if index >= len(pool.questions):
            raise UsageError(
                f"{self.name}: sample {index} asked for, and the corpus has "
                f"{len(pool.questions)} questions: ask for samples 0 to {len(pool.questions) - 1}"
            )
        asked = pool.questions[index]
        # Drawn first: where the documents stand does not depend on how many were looked at.
        places = random.Random(draft.rng.getrandbits(128))
        if self.same_places or self.published:
            places = sample_rng(self, replace(draft.at, index=0))
        question = asked.question if self.bare_question else f"{INSTRUCTION} {asked.question}"
        return AskedQuestion(prompt_of(asked.question), question, pool, asked, places)

    def fill(self, draft: Draft, asked: AskedQuestion, room: int) -> Filled:
        """Unit: a document.

        Raises:
            UsageError: the corpus is used up, or there is no such number of documents.
        """
        measure, golds = draft.measure, asked.asked.golds
        chosen, tokens = self._choose(draft, asked, room)
        pieces = NumberedDocuments(asked.pool, self._arrange(asked, chosen))
        place_of = {document: place for place, document in enumerate(pieces.order)}
        end = pieces[-1].rstrip()
        newlines = measure.line_once(pieces[-1] + "\n\n") - measure.count_once(end)
        return Filled(
            pieces,
            "\n\n",
            golds=asked.asked.answers,
            tokens=tokens,
            context_tokens=tokens - newlines,
            units=len(pieces),
            evidence=tuple(
                fact_at(place_of[document], asked.pool.documents[document], start, end)
                for document, start, end in asked.asked.facts
            ),
            meta={
                "gold_documents": [place_of[document] + 1 for document in golds],
                "depths": [place_of[document] / len(pieces) for document in golds],
                "kind": asked.asked.kind,
                "documents": [document_name(asked.pool.documents[number]) for number in golds],
            },
            sources={self.corpus: asked.pool.fingerprint, "filling": FILLING},
        )

    def _choose(self, draft: Draft, asked: AskedQuestion, room: int) -> tuple[list[int], int]:
        """The documents of the haystack and their tokens with headings. The golds are always
        among them, the other own ones as far as there is room."""
        drawing = Drawing(draft.rng, asked.pool, asked.asked, draft.measure)
        if self.fills_length and not self.published:
            chosen, tokens, full = drawing.fill(room)
        else:
            if self.fills_length:
                wanted = draft.cell.within(drawing.within(room))
            else:
                wanted = self._wanted(draft.at.length, asked.asked)
            chosen, tokens = drawing.take(wanted)
            full = len(chosen) == wanted
        if full or self.whole_corpus_at_most or self.published:
            return chosen, tokens
        length = draft.at.length
        raise UsageError(
            f"{self.name}: length {length} needs more than the {len(asked.pool.documents)} "
            f"documents of the corpus, which make {length - room + tokens} tokens: ask for at most "
            f"that, give a larger {self.corpus} file, or take the whole corpus where it ends, with "
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

    def _arrange(self, asked: AskedQuestion, chosen: Sequence[int]) -> Sequence[int]:
        """A random order in which the golds stand within the first share of the places, or the
        first of them at the depth."""
        golds, rng = list(asked.asked.golds), asked.places
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


def prompt_of(question: str) -> RulerPrompt:
    """RULER's prompt for a question on documents."""
    return RulerPrompt(BEFORE, AFTER + question, ANSWER_PREFIX)


def document_name(text: str) -> str:
    """What a document is called in a sample's `meta`: the same text, the same name."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fact_at(place: int, document: str, start: int, end: int) -> Evidence:
    """Characters [start, end) of a document, which is piece `place` of a context."""
    before = len(heading(place + 1))
    return Evidence(place, before + start, before + end, document[start:end])
