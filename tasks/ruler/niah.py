"""Needles in a haystack: RULER's eight niah tasks and their variants without essays.

Source: RULER (Hsieh et al. 2024, arXiv:2404.06654), section 3 and appendix B; generator
https://github.com/NVIDIA/RULER/blob/main/scripts/data/synthetic/niah.py. The question's form
is MemAgent's (arXiv:2507.02259, section 4; context and question are separate there).

A needle is `One of the special magic numbers for {key} is: {value}.` The haystack is a noise
line repeated, or further needles, or Paul Graham's essays. Worked example (niah_single_1):

    context   The grass is green. ... There and back again.
              One of the special magic numbers for weak-jeweller is: 2166941.
              The grass is green. ... There and back again.
    question  A special magic number is hidden within the following text. Make sure to
              memorize it. What is the special magic number for weak-jeweller mentioned in
              the provided text?
    golds     2166941

Differences from RULER, each of which `published=true` takes back: a sample is filled to the
length by itself and has an order of its own (there, those of a cell share both, see
`tasks.haystack.published_cells`); keys of a sample are distinct, and no line of a needle haystack
has the key that is asked for; values of a sample are distinct; essays repeat without end.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core.context import Context
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Evidence, Json, Match, Problem, Sample
from tasks.corpora.read import Corpora
from tasks.haystack.lines import NOISE, Inserted, Repeated, insertion_points, pinned_points
from tasks.haystack.measure import Meter, meter, too_short
from tasks.haystack.published_cells import SHORT, Cell, published_cell
from tasks.ruler.essays import DEPTHS, fill_with_essays
from tasks.ruler.needles import (
    Kind,
    draw_any,
    draw_distinct,
    fill_with_needles,
    first_lines,
    needle_text,
)
from tasks.ruler.words import lexicon
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, Materials, check_depth, parameters_of, sample_id, sample_rng

MAGIC = {
    False: "Some special magic {kind} are hidden within the following text. "
    "Make sure to memorize it.",
    True: "A special magic {kind} is hidden within the following text. Make sure to memorize it.",
}
QUIZ = " I will quiz you about the {kind} afterwards.\n"
QUESTION = {
    False: "What are all the special magic {kind} for {query} mentioned in the provided text?",
    True: "What is the special magic {kind} for {query} mentioned in the provided text?",
}
ANSWER_PREFIX = {
    False: " The special magic {kind} for {query} mentioned in the provided text are",
    True: " The special magic {kind} for {query} mentioned in the provided text is",
}

ESSAY_STEP, LINE_STEP, SHORT_LINE_STEP = 500, 25, 5
"""Words and lines that the published generators add at a time, the last below SHORT tokens."""


@dataclass(frozen=True, slots=True)
class Needle:
    """One hidden fact and the sentence that tells it."""

    key: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The texts around a context in RULER's prompt, and MemAgent's question."""

    before: str
    after: str
    answer_prefix: str
    question: str


@dataclass(frozen=True, slots=True)
class Hay:
    """A filled haystack. `places[i]` is the piece index of needle i, `depths[i]` the share of
    haystack units before it; `tokens` counts the context and the newline after it."""

    separator: str
    pieces: Sequence[str]
    places: Sequence[int]
    depths: Sequence[float]
    units: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Niah:
    """One needle task. Fields are RULER's: kinds of key and value, how many keys are hidden,
    how many values each has, how many keys are asked for. `depth` puts the needle of the first
    gold at that share of the haystack (0 to 1) and leaves the others where chance puts them.
    `near_misses` is the share of a needle haystack's lines whose key has one of the two words
    of a hidden key (RULER: 0, so about one line of 800 has). `published` makes cells as
    the published generators do, see above."""

    name: str
    summary: str
    haystack: Literal["noise", "needle", "essay"]
    key_kind: Kind = "words"
    value_kind: Kind = "numbers"
    keys: int = 1
    values: int = 1
    queries: int = 1
    generation_tokens: int = 128
    depth: float | None = None
    near_misses: float = 0.0
    published: bool = False
    source: ClassVar[str] = "RULER (arXiv:2404.06654), section 3, niah; PROTOCOL 2.2"
    match: ClassVar[Match] = "all"
    scorer: ClassVar[GoldScorer] = ALL

    def __post_init__(self) -> None:
        if min(self.keys, self.values, self.queries) < 1:
            raise UsageError(
                f"{self.name}: got keys {self.keys}, values {self.values}, queries "
                f"{self.queries}, expected at least 1 of each"
            )
        check_depth(self.name, self.depth)
        if not 0 <= self.near_misses <= 1:
            raise UsageError(f"{self.name}: near_misses {self.near_misses}, expected 0 to 1")
        if self.near_misses and (
            self.published or self.haystack != "needle" or self.key_kind != "words"
        ):
            raise UsageError(
                f"{self.name}: near_misses needs a haystack of needles with keys of two words "
                "(niah_multikey_2), and published=false"
            )
        hidden = max(self.keys, self.queries) * self.values
        if self.haystack == "essay" and hidden > len(DEPTHS):
            raise UsageError(
                f"{self.name}: {hidden} needles for the {len(DEPTHS)} depths of an essay haystack"
            )

    @property
    def parameters(self) -> Mapping[str, Json]:
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`. Unit: a noise line, a needle line, a word of essay."""
        index, length, seed = at.index, at.length, at.seed
        tokenizer, corpora = materials.tokenizer, materials.corpora
        rng = sample_rng(self, at)
        cell = self._cell(index, length, seed, tokenizer, corpora) if self.published else Cell()
        needles, asked = self._draw_needles(rng)
        asked_keys = [needles[i].key for i in asked[:: self.values]]
        frame = self._frame(asked_keys)
        measure = meter(tokenizer)
        around = measure.line_once(frame.before) + measure.count_once(
            frame.after.removeprefix("\n") + frame.answer_prefix
        )
        room = length - self.generation_tokens - around
        hay = self._fill(rng, needles, asked[0], room, cell, measure, corpora)
        if (least := around + hay.tokens + self.generation_tokens) > length:
            raise too_short(self.name, length, least, tokenizer)
        sources = {"tokenizer": tokenizer.fingerprint, "words": lexicon().fingerprint}
        if self.haystack == "essay":
            sources["essays"] = corpora.essays().fingerprint
        return Sample(
            id=sample_id(self, at, sources),
            task=self.name,
            index=index,
            problem=Problem(Context(hay.pieces, hay.separator), frame.question),
            golds=tuple(needles[i].value for i in asked),
            match=self.match,
            evidence=tuple(
                Evidence(hay.places[i], 0, len(needles[i].text), needles[i].text) for i in asked
            ),
            meta={
                "keys": list(asked_keys),
                "values": [needles[i].value for i in asked],
                "depths": [hay.depths[i] for i in asked],
                "units": hay.units,
                "context_tokens": hay.tokens - _newline_tokens(hay, measure),
                "prompt_tokens": around + hay.tokens,
                "ruler_before": frame.before,
                "ruler_after": frame.after,
                "answer_prefix": frame.answer_prefix,
            },
        )

    def _cell(
        self, index: int, length: int, seed: int, tokenizer: Tokenizer, corpora: Corpora
    ) -> Cell:
        step, end = SHORT_LINE_STEP if length < SHORT else LINE_STEP, sys.maxsize
        if self.haystack == "essay":
            step, end = ESSAY_STEP, len(corpora.essays().words)
        return published_cell(
            Niah.sample, self, index, length, seed, tokenizer, corpora, step=step, end=end
        )

    def _draw_needles(self, rng: random.Random) -> tuple[list[Needle], list[int]]:
        """The needles in the order of drawing, and which are asked for, in question order."""
        count = max(self.keys, self.queries)
        draw = draw_any if self.published else draw_distinct
        keys = draw(self.key_kind, rng, count)
        values = draw(self.value_kind, rng, count * self.values)
        needles = [
            Needle(key, value, needle_text(self.value_kind, key, value))
            for i, key in enumerate(keys)
            for value in values[i * self.values : (i + 1) * self.values]
        ]
        asked = rng.sample(range(count), self.queries)
        return needles, [i * self.values + j for i in asked for j in range(self.values)]

    def _frame(self, asked_keys: Sequence[str]) -> Frame:
        single = self.queries * self.values == 1
        kind = self.value_kind.removesuffix("s") if single else self.value_kind
        query = asked_keys[0]
        if len(asked_keys) > 1:
            query = ", ".join(asked_keys[:-1]) + ", and " + asked_keys[-1]
        magic = MAGIC[single].format(kind=kind)
        question = QUESTION[single].format(kind=kind, query=query)
        return Frame(
            before=magic + QUIZ.format(kind=kind),
            after="\n" + question,
            answer_prefix=ANSWER_PREFIX[single].format(kind=kind, query=query),
            question=f"{magic} {question}",
        )

    def _fill(
        self,
        rng: random.Random,
        needles: Sequence[Needle],
        first_gold: int,
        room: int,
        cell: Cell,
        measure: Meter,
        corpora: Corpora,
    ) -> Hay:
        """The fullest haystack that fits `room` tokens with its needles, or the least one."""
        if self.haystack == "essay":
            texts = [needle.text for needle in needles]
            pinned = None if self.depth is None else (first_gold, self.depth)
            essays = corpora.essays()
            return Hay(" ", *fill_with_essays(rng, essays, texts, room, cell, measure, pinned))
        hidden = sum(measure.line_once(needle.text + "\n") for needle in needles)
        base: Sequence[str]
        if self.haystack == "noise":
            line = measure.line(NOISE + "\n")
            base = Repeated(NOISE, max(cell.within((room - hidden) // line), len(needles)))
            tokens = hidden + line * len(base)
        else:
            base, used = fill_with_needles(
                rng,
                self.key_kind,
                self.value_kind,
                room - hidden,
                () if self.published else {needle.key for needle in needles},
                measure,
                least=max(len(needles), cell.step),
                near_misses=self.near_misses,
            )
            if (lines := max(cell.within(len(base)), len(needles))) < len(base):
                base, used = first_lines(base, lines, measure)
            tokens = hidden + used
        if self.depth is not None:
            places = pinned_points(rng, len(base), len(needles), first_gold, self.depth)
        else:
            places = insertion_points(rng, len(base), len(needles))
            cell.order_rng(rng).shuffle(places)
        inserted = {place: n.text for place, n in zip(places, needles, strict=True)}
        needles_before = [sum(p < place for p in places) for place in places]
        return Hay(
            pieces=Inserted(base, inserted),
            separator="\n",
            places=places,
            depths=[
                (place - n) / len(base) for place, n in zip(places, needles_before, strict=True)
            ],
            units=len(base),
            tokens=tokens,
        )


def _newline_tokens(hay: Hay, measure: Meter) -> int:
    """Tokens that the newline after the context adds to the prompt."""
    end = hay.separator + hay.pieces[-1]
    return measure.line_once(end + "\n") - measure.count_once(end)
