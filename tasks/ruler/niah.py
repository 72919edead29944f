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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core.errors import UsageError
from core.types import Evidence, Match, RulerPrompt
from tasks.corpora.read import Corpora
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.lines import NOISE, Inserted, Repeated, insertion_points, pinned_points
from tasks.haystack.published_cells import SHORT, Steps
from tasks.ruler.essays import DEPTHS, fill_with_essays
from tasks.ruler.needles import (
    Kind,
    LineKinds,
    draw_any,
    draw_distinct,
    fill_with_needles,
    needle_text,
)
from tasks.ruler.words import lexicon
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, check_depth

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
class AskedNeedles(Asked):
    """The needles in the order of drawing, and which are asked for, in the question's order."""

    needles: tuple[Needle, ...]
    wanted: tuple[int, ...]


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
class Niah(Family[AskedNeedles]):
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

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        if not self.published:
            return None
        if self.haystack == "essay":
            return Steps(ESSAY_STEP, len(corpora.essays().words))
        return Steps(SHORT_LINE_STEP if at.length < SHORT else LINE_STEP)

    def draw(self, draft: Draft) -> AskedNeedles:
        """Needles, and which of them are asked for."""
        count = max(self.keys, self.queries)
        draw = draw_any if self.published else draw_distinct
        keys = draw(self.key_kind, draft.rng, count)
        values = draw(self.value_kind, draft.rng, count * self.values)
        needles = tuple(
            Needle(key, value, needle_text(self.value_kind, key, value))
            for i, key in enumerate(keys)
            for value in values[i * self.values : (i + 1) * self.values]
        )
        asked = draft.rng.sample(range(count), self.queries)
        prompt, question = self._words_around([keys[i] for i in asked])
        wanted = tuple(i * self.values + j for i in asked for j in range(self.values))
        return AskedNeedles(prompt, question, needles, wanted)

    def _words_around(self, asked_keys: Sequence[str]) -> tuple[RulerPrompt, str]:
        single = self.queries * self.values == 1
        kind = self.value_kind.removesuffix("s") if single else self.value_kind
        query = asked_keys[0]
        if len(asked_keys) > 1:
            query = ", ".join(asked_keys[:-1]) + ", and " + asked_keys[-1]
        magic = MAGIC[single].format(kind=kind)
        question = QUESTION[single].format(kind=kind, query=query)
        prefix = ANSWER_PREFIX[single].format(kind=kind, query=query)
        prompt = RulerPrompt(magic + QUIZ.format(kind=kind), "\n" + question, prefix)
        return prompt, f"{magic} {question}"

    def fill(self, draft: Draft, asked: AskedNeedles, room: int) -> Filled:
        """Unit: a noise line, a needle line, a word of essay."""
        needles = [asked.needles[i] for i in asked.wanted]
        essay = self.haystack == "essay"
        hay = (self._in_essays if essay else self._in_lines)(draft, asked, room)
        end = hay.separator + hay.pieces[-1]
        newline = draft.measure.line_once(end + "\n") - draft.measure.count_once(end)
        sources = {"words": lexicon().fingerprint}
        if essay:
            sources["essays"] = draft.corpora.essays().fingerprint
        return Filled(
            hay.pieces,
            hay.separator,
            golds=tuple(needle.value for needle in needles),
            tokens=hay.tokens,
            context_tokens=hay.tokens - newline,
            units=hay.units,
            evidence=tuple(
                Evidence(hay.places[i], 0, len(needle.text), needle.text)
                for i, needle in zip(asked.wanted, needles, strict=True)
            ),
            meta={
                "keys": [needle.key for needle in needles[:: self.values]],
                "values": [needle.value for needle in needles],
                "depths": [hay.depths[i] for i in asked.wanted],
            },
            sources=sources,
        )

    def _in_essays(self, draft: Draft, asked: AskedNeedles, room: int) -> Hay:
        texts = [needle.text for needle in asked.needles]
        pinned = None if self.depth is None else (asked.wanted[0], self.depth)
        hay = fill_with_essays(draft, texts, room, pinned)
        return Hay(" ", hay.pieces, hay.places, hay.depths, hay.words, hay.tokens)

    def _in_lines(self, draft: Draft, asked: AskedNeedles, room: int) -> Hay:
        needles, measure, rng = asked.needles, draft.measure, draft.rng
        hidden = sum(measure.line_once(needle.text + "\n") for needle in needles)
        base, tokens = self._lines(draft, needles, room - hidden)
        if self.depth is not None:
            places = pinned_points(rng, len(base), len(needles), asked.wanted[0], self.depth)
        else:
            places = insertion_points(rng, len(base), len(needles))
            draft.cell.order_rng(rng).shuffle(places)
        inserted = {place: n.text for place, n in zip(places, needles, strict=True)}
        before = [place - sum(other < place for other in places) for place in places]
        depths = [lines / len(base) for lines in before]
        return Hay("\n", Inserted(base, inserted), places, depths, len(base), hidden + tokens)

    def _lines(
        self, draft: Draft, needles: Sequence[Needle], room: int
    ) -> tuple[Sequence[str], int]:
        """Lines of noise, or of other needles, for so much room, and their tokens."""
        if self.haystack == "noise":
            line = draft.measure.line(NOISE + "\n")
            count = max(draft.cell.within(room // line), len(needles))
            return Repeated(NOISE, count), line * count
        keys = () if self.published else {needle.key for needle in needles}
        kinds = LineKinds(self.key_kind, self.value_kind, frozenset(keys), self.near_misses)
        least = max(len(needles), draft.cell.steps.size)
        lines, ends = fill_with_needles(draft.rng, kinds, room, draft.measure, least)
        count = max(draft.cell.within(len(lines)), len(needles))
        return lines.part(0, count), int(ends[count - 1])
