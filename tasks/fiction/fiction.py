"""Multi-hop questions on a fictional world: ruler_hqa's form, with no corpus and no memory of it.

Form: MemAgent's RULER-HotpotQA (arXiv:2507.02259, section 4; PROTOCOL 2.1), with the bare
question. Kinds of question: HotpotQA's bridge and comparison (Yang et al. 2018,
arXiv:1809.09600), of two to four hops. The corpus is this project's own: each seed is another
world, of 12.6 million documents, and no name or fact in it stands anywhere else, so nothing
that a model remembers answers a question (the paper had to filter HotpotQA for that).

Worked example (fiction_2hop):

    context   Document 1:
              Zaskuth Institute of Jewellery
              Zaskuth Institute of Jewellery is an old school that was opened in 1745. ...

              Document 2:
              ...
    question  Who is the rector of the school attended by Jabrel Nirav?
    golds     Zidwen Kembuth

The haystack: the documents that tell the facts; near misses, which would answer the question
with one hop replaced, or whose titles share half a name with the gold ones; and documents of
the world at random, three and three linked as the gold ones are. All in random order. The
question of (seed, index) is the same at every length. See `world` (facts), `prose` (documents) and
`questions`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from core.errors import UsageError
from core.types import Evidence, Json, Match
from tasks.fiction.names import KINDS
from tasks.fiction.prose import (
    NumberedStories,
    Outlines,
    forms,
    outlines,
    sentences_of,
    story_tokens,
)
from tasks.fiction.questions import FictionQuestion, draw_question
from tasks.fiction.world import SIZE, Ints, World, code_of, world_of
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.measure import Meter
from tasks.once import once
from tasks.questions.documents import INSTRUCTION, heading, prompt_of
from tasks.scoring import ANY, GoldScorer
from tasks.task import seed_of

MOST_HOPS = 6


@dataclass(frozen=True, slots=True)
class AskedFiction(Asked):
    """A question of a world."""

    world: World
    asked: FictionQuestion


@dataclass(frozen=True, slots=True)
class Fiction(Family[AskedFiction]):
    """Questions of `hops` gold documents each, one of the numbers at random.

    `comparisons`: share of questions that compare two things; the others are chains.
    `near`: how many near misses at most, as far as there is room. `documents`: None fills the
    haystack to the length; a number is the number. `gold_within`: the gold documents stand
    within this first share of the documents.
    """

    name: str
    summary: str
    hops: tuple[int, ...]
    comparisons: float = 0.25
    near: int = 16
    bare_question: bool = True
    documents: int | None = None
    gold_within: float = 1.0
    generation_tokens: int = 32
    source: ClassVar[str] = "the project's own; form of RULER-HotpotQA (arXiv:2507.02259)"
    match: ClassVar[Match] = "any"
    scorer: ClassVar[GoldScorer] = ANY

    def __post_init__(self) -> None:
        if not self.hops or not all(2 <= hops <= MOST_HOPS for hops in self.hops):
            raise UsageError(f"{self.name}: hops {self.hops}, expected numbers 2 to {MOST_HOPS}")
        if not 0 <= self.comparisons <= 1 or self.near < 0:
            raise UsageError(
                f"{self.name}: comparisons {self.comparisons}, near {self.near}; expected a "
                "share 0 to 1 and a number from 0"
            )
        if self.comparisons and max(self.hops) > 5:
            raise UsageError(f"{self.name}: comparisons have 2 to 5 hops, got {self.hops}")
        if not 0 < self.gold_within <= 1:
            raise UsageError(f"{self.name}: gold_within {self.gold_within}, expected 0 < x <= 1")

    @property
    def fills_length(self) -> bool:
        return self.documents is None

    def draw(self, draft: Draft) -> AskedFiction:
        world = world_of(draft.at.seed)
        shape: dict[str, Json] = {"hops": list(self.hops), "comparisons": self.comparisons}
        rng = random.Random(seed_of("fiction", shape, 0, draft.at.seed, draft.at.index))
        hops = rng.choice(self.hops)
        asked = draw_question(world, rng, hops, compares=rng.random() < self.comparisons)
        question = asked.text if self.bare_question else f"{INSTRUCTION} {asked.text}"
        return AskedFiction(prompt_of(asked.text), question, world, asked)

    def fill(self, draft: Draft, asked: AskedFiction, room: int) -> Filled:
        """Unit: a document.

        Raises:
            UsageError: `documents` is less than the gold ones, or more than the world has.
        """
        measure, question = draft.measure, asked.asked
        chosen, tokens = self._choose(draft, asked, room)
        order, places = self._arrange(draft.rng, len(chosen), len(question.golds))
        newlines = measure.line(".\n\n") - measure.count(".")
        return Filled(
            NumberedStories(chosen[order]),
            "\n\n",
            golds=(question.answer,),
            tokens=tokens,
            context_tokens=tokens - newlines,
            units=len(order),
            evidence=tuple(_evidence(asked.world, question, places)),
            meta={
                "gold_documents": [place + 1 for place in places],
                "depths": [place / len(order) for place in places],
                "kind": question.kind,
                "hops": len(places),
                "documents": [f"{draft.at.seed}:{code_of(gold)}" for gold in question.golds],
            },
            sources={"fiction": forms().fingerprint},
        )

    def _choose(self, draft: Draft, asked: AskedFiction, room: int) -> tuple[Outlines, int]:
        """The documents of the haystack, the golds first, and their tokens with headings. The
        golds are always among them, the near misses as far as there is room."""
        world, question, measure = asked.world, asked.asked, draft.measure
        golds = len(question.golds)
        wanted = self.documents
        if wanted is not None and not golds <= wanted <= SIZE:
            raise UsageError(
                f"{self.name}: {wanted} documents, expected {golds} (the gold ones) to {SIZE}"
            )
        own = [code_of(entity) for entity in (*question.golds, *question.near[: self.near])]
        codes = np.array(own)
        stories = outlines(world, codes)
        tokens = story_tokens(stories, measure)
        while True:
            sums = np.cumsum(tokens + _heading_tokens(len(codes), measure))
            fitting = int(np.searchsorted(sums, room, side="right"))
            if fitting < len(codes) if wanted is None else wanted <= len(codes):
                count = max(fitting, golds) if wanted is None else wanted
                return stories[:count], int(sums[count - 1])
            lacking = wanted - len(codes) if wanted else (room - sums[-1]) / np.mean(tokens)
            drawn = _distinct(codes, _draw(draft.rng, world, int(lacking * 1.1) + 16))
            more = outlines(world, drawn)
            tokens = np.concatenate([tokens, story_tokens(more, measure)])
            codes, stories = np.concatenate([codes, drawn]), stories + more

    def _arrange(self, rng: random.Random, count: int, golds: int) -> tuple[Ints, list[int]]:
        """A random order of `count` documents, the golds first, in which the golds stand within
        the first share of the places, and where each of them stands."""
        first = max(int(count * self.gold_within), golds)
        places = rng.sample(range(first), golds)
        free = np.ones(count, dtype=bool)
        free[places] = False
        order = np.empty(count, dtype=np.int64)
        order[places] = np.arange(golds)
        order[free] = golds + np.argsort(_numbers(rng, count - golds), kind="stable")
        return order, places


def _numbers(rng: random.Random, count: int) -> Ints:
    """Numbers from 0 to 2^63 - 1."""
    return (np.frombuffer(rng.randbytes(8 * count), dtype="<u8") >> np.uint64(1)).astype(np.int64)


def _draw(rng: random.Random, world: World, count: int) -> Ints:
    """At least `count` documents: entities at random, what one of the relations of each leads
    to, and what one of those leads to in turn, so that links do not tell the golds apart."""
    third = -(-count // 3)
    start = _numbers(rng, third) % (len(KINDS) * SIZE)
    second = world.step(start, _numbers(rng, third))
    last = world.step(second, _numbers(rng, third))
    return np.stack([start, second, last], axis=1).ravel()


def _distinct(known: Ints, drawn: Ints) -> Ints:
    """Those drawn that are not known, each once, in the order of drawing."""
    both = np.concatenate([known, drawn])
    _, first = np.unique(both, return_index=True)
    return both[np.sort(first[first >= len(known)])]


def _heading_tokens(count: int, measure: Meter) -> Ints:
    """Tokens of `Document 1` to `Document {count}`."""
    return _heading_table(1 << (count - 1).bit_length(), measure)[:count]


@once(32)
def _heading_table(count: int, measure: Meter) -> Ints:
    numbers = [str(number) for number in range(1, count + 1)]
    return measure.count("Document") + measure.spaced(numbers)


def _evidence(world: World, question: FictionQuestion, places: list[int]) -> Iterator[Evidence]:
    place_of = dict(zip(question.golds, places, strict=True))
    sentences = sentences_of(world, question.facts)
    for told, (start, text) in zip(question.facts, sentences, strict=True):
        place = place_of[told.entity]
        start += len(heading(place + 1))
        yield Evidence(place, start, start + len(text), text)
