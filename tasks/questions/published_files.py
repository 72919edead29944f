"""MemAgent's own evaluation files: a published cell on the published bytes.

Source: MemAgent (arXiv:2507.02259), section 4; data set BytedTsinghua-SIA/hotpotqa on the
Hugging Face hub, files eval_{N}.json for N documents: an array of objects with the fields
context, input (the question), answers, num_docs, index (the question's place in HotpotQA's
dev file). PROTOCOL 2.1.

    text form   context is the haystack: "Document 1:\\n...\\n\\nDocument 2:\\n..."
    index form  (more than 10,000 documents) context is a list of numbers into the sorted
                distinct documents of HotpotQA's dev file, which has to be there as well

A length is one of MemAgent's nominal ones: 7000 reads eval_50.json, 3500000 eval_25600.json.
Seed and tokenizer shape nothing. A text file of 6,400 documents a question is half a gigabyte,
mostly of the same documents: each distinct one is kept once, so it takes a tenth of that.

Where HotpotQA's dev file is there and agrees with the question, its supporting facts are the
evidence; without it a sample of a text file has none.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from core.context import Context
from core.errors import DataMissing, UsageError
from core.types import Evidence, Json, Match, Problem, Sample
from tasks.corpora.read import Corpora, Pool, Question, Source, json_items
from tasks.questions.documents import (
    PUBLISHED_DOCUMENTS,
    NumberedDocuments,
    document_name,
    fact_at,
    heading,
    prompt_of,
)
from tasks.scoring import ANY, GoldScorer
from tasks.task import Coordinates, Materials, sample_id

FOLDERS = ("", "published")


@dataclass(frozen=True, eq=False, slots=True)
class PublishedItem:
    """One question. `order`: numbers of its documents; `position`: its place in the dev file."""

    question: str
    answers: tuple[str, ...]
    order: Sequence[int]
    position: int | None


@dataclass(frozen=True, eq=False, slots=True)
class PublishedFile:
    """One file. `pool` is None in the index form: the numbers are HotpotQA's."""

    items: tuple[PublishedItem, ...]
    pool: Pool | None
    fingerprint: str


def read_published(path: Path) -> PublishedFile:
    """Reads a file of either form, item by item.

    Raises:
        ValueError, KeyError, TypeError: it is not one; the text says which item.
    """
    source = Source(path)
    texts: dict[str, int] = {}
    items: list[PublishedItem] = []
    by_number: set[bool] = set()
    for number, item in enumerate(json_items(source.blocks())):
        context = item["context"]
        by_number.add(isinstance(context, list))
        items.append(_item(item, _order(context, texts, number)))
    if len(by_number) != 1:
        raise ValueError("expected questions, all of the text form or all of the index form")
    fingerprint = source.fingerprint()
    pool = None if by_number == {True} else Pool(tuple(texts), (), fingerprint)
    return PublishedFile(tuple(items), pool, fingerprint)


def _item(item: Mapping[str, Any], order: Sequence[int]) -> PublishedItem:
    answers = item["answers"]
    answers = [answers] if isinstance(answers, str) else answers
    position = item.get("index")
    question = item["input"]
    if not isinstance(question, str) or not answers or not all(isinstance(a, str) for a in answers):
        raise TypeError(f"input {question!r:.60}, answers {answers!r:.60}: expected texts")
    return PublishedItem(
        question, tuple(answers), order, position if isinstance(position, int) else None
    )


def _order(context: Any, texts: dict[str, int], number: int) -> Sequence[int]:
    """The documents of a context by number; new texts get the next numbers."""
    if isinstance(context, list):
        if not context or not all(type(n) is int and n >= 0 for n in context):
            raise ValueError(f"item {number}: expected document numbers in its context")
        return array("I", context)
    documents = split_documents(context)
    if documents is None:
        raise ValueError(f"item {number}: its context does not begin with {heading(1)!r}")
    return array("I", (texts.setdefault(document, len(texts)) for document in documents))


def split_documents(context: str) -> list[str] | None:
    """The documents of a rendered haystack, in order; None if it is not one. Rendered again
    they are the same text, whatever the documents hold."""
    if not context.startswith(heading(1)):
        return None
    documents: list[str] = []
    start = len(heading(1))
    while True:
        mark = f"\n\n{heading(len(documents) + 2)}"
        end = context.find(mark, start)
        if end < 0:
            return [*documents, context[start:]]
        documents.append(context[start:end])
        start = end + len(mark)


@dataclass(frozen=True, slots=True)
class PublishedQuestions:
    """The questions of the published files, as they are."""

    name: str
    summary: str
    generation_tokens: int = 32
    source: ClassVar[str] = "MemAgent (arXiv:2507.02259), section 4; PROTOCOL 2.1"
    match: ClassVar[Match] = "any"
    scorer: ClassVar[GoldScorer] = ANY

    @property
    def parameters(self) -> Mapping[str, Json]:
        return {"generation_tokens": self.generation_tokens}

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """Question `index` of the file for `length`, whatever the seed and the tokenizer.

        Raises:
            UsageError: no such length or question, or HotpotQA's file is not the one that the
                numbers of an index file refer to.
            DataMissing: the file is not there, or HotpotQA's for an index file.
        """
        index, length, corpora = at.index, at.length, materials.corpora
        file = self._file(length, corpora)
        if not 0 <= index < len(file.items):
            raise UsageError(
                f"{self.name}: sample {index} asked for, and the file for length {length} has "
                f"{len(file.items)} questions"
            )
        item = file.items[index]
        pool, known = _pool_and_question(self.name, file, item, corpora)
        pieces = NumberedDocuments(pool, item.order)
        golds, evidence = _facts(pieces, known, corpora)
        sources = {"published": file.fingerprint}
        if file.pool is None:
            sources["hotpotqa"] = pool.fingerprint
        return Sample(
            # Seed and tokenizer shape nothing, and are no part of the id.
            id=sample_id(self, replace(at, seed=0), sources),
            task=self.name,
            index=index,
            problem=Problem(Context(pieces, "\n\n"), item.question),
            golds=item.answers,
            match=self.match,
            evidence=evidence,
            meta={
                "gold_documents": [place + 1 for place in golds],
                "depths": [place / len(pieces) for place in golds],
                "kind": known.kind if known else "",
                "documents": [document_name(pieces.document(place)) for place in golds],
            },
            prompt=prompt_of(item.question),
            source_index=item.position,
        )

    def _file(self, length: int, corpora: Corpora) -> PublishedFile:
        documents = PUBLISHED_DOCUMENTS.get(length)
        if documents is None:
            raise UsageError(
                f"{self.name}: length {length}; expected one of MemAgent's nominal lengths "
                f"{', '.join(map(str, PUBLISHED_DOCUMENTS))}"
            )
        name = f"eval_{documents}.json"
        return corpora.read(name, (name,), FOLDERS, read_published)


def _pool_and_question(
    name: str, file: PublishedFile, item: PublishedItem, corpora: Corpora
) -> tuple[Pool, Question | None]:
    """The documents that the item's numbers mean, and the item's question in HotpotQA."""
    if file.pool is not None:
        try:
            return file.pool, _same_question(corpora.hotpotqa(), item)
        except DataMissing:
            return file.pool, None
    pool = corpora.hotpotqa()
    known = _same_question(pool, item)
    if max(item.order) >= len(pool.documents) or (item.position is not None and known is None):
        raise UsageError(
            f"{name}: the numbers of this file are of HotpotQA's whole dev set, 7,405 questions "
            f"and 66,635 documents, and the file that was found has {len(pool.questions):,} and "
            f"{len(pool.documents):,}, or other ones. Get hotpot_dev_distractor_v1.json."
        )
    return pool, known


def _same_question(pool: Pool, item: PublishedItem) -> Question | None:
    if item.position is None or not 0 <= item.position < len(pool.questions):
        return None
    question = pool.questions[item.position]
    return question if question.question.strip() == item.question.strip() else None


def _facts(
    pieces: NumberedDocuments, known: Question | None, corpora: Corpora
) -> tuple[list[int], tuple[Evidence, ...]]:
    """Places of the gold documents, and the supporting facts in them."""
    if known is None:
        return [], ()
    documents = corpora.hotpotqa().documents
    golds = {documents[number]: number for number in known.golds}
    place_of = {
        golds[text]: place
        for place, number in enumerate(pieces.order)
        if (text := pieces.pool.documents[number]) in golds
    }
    evidence = tuple(
        fact_at(place_of[number], documents[number], start, end)
        for number, start, end in known.facts
        if number in place_of
    )
    return [place_of[number] for number in known.golds if number in place_of], evidence
