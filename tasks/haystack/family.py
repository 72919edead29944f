"""How every family of tasks makes a sample of a wanted length: one frame, and what differs.

A family draws what is hidden and asked (`draw`), and fills what is left of the length with
haystack (`fill`). The frame measures RULER's prompt around the context, looks up what the cell
shares, refuses what does not fit, and puts the sample together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

from core.context import Context
from core.errors import UsageError
from core.types import Evidence, Json, Match, Problem, RulerPrompt, Sample, Sizes
from tasks.corpora.read import Corpora
from tasks.haystack.measure import Meter, meter
from tasks.haystack.published_cells import PublishedCell, Steps
from tasks.once import once
from tasks.task import Coordinates, Materials, cell_seed, parameters_of, sample_id, sample_rng


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sample asks, before it has a haystack. `question` is what methods get."""

    prompt: RulerPrompt
    question: str


AskedT = TypeVar("AskedT", bound=Asked)


@dataclass(frozen=True, slots=True)
class Draft:
    """A sample in the making. `rng` is its own random generator, `cell` what its cell shares."""

    at: Coordinates
    corpora: Corpora
    measure: Meter
    rng: random.Random
    cell: PublishedCell


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled haystack with its golds.

    `tokens`: of the context and of the newlines that RULER's prompt has after it, of which the
    context without outer white space is `context_tokens`. `cell_units`: the units that a
    published cell has in common, where they are not `units`. `sources`: name -> SHA-256 of
    what the bytes depend on besides the tokenizer.
    """

    pieces: Sequence[str]
    separator: str
    golds: tuple[str, ...]
    tokens: int
    context_tokens: int
    units: int
    evidence: tuple[Evidence, ...] = ()
    meta: Mapping[str, Json] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    cell_units: int | None = None


class Family(Generic[AskedT]):
    """The frame; a family is a frozen dataclass that says the rest."""

    __slots__ = ()

    name: str
    generation_tokens: int
    match: ClassVar[Match]

    def draw(self, draft: Draft) -> AskedT:
        """What is hidden and asked."""
        raise NotImplementedError

    def fill(self, draft: Draft, asked: AskedT, room: int) -> Filled:
        """The fullest haystack of at most `room` tokens, or the least that there can be."""
        raise NotImplementedError

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        """The steps of a published cell; None where samples are filled one by one."""
        return None

    @property
    def fills_length(self) -> bool:
        """Whether the length is a limit, and not only a name for a number of units."""
        return True

    @property
    def parameters(self) -> Mapping[str, Json]:
        """See `tasks.task.Task`."""
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`."""
        asked, filled, room = self._made(at, materials)
        if filled.tokens > room and self.fills_length:
            raise self.too_short(at, room, filled.tokens, materials.tokenizer.name)
        sources = {"tokenizer": materials.tokenizer.fingerprint, **filled.sources}
        around = at.length - self.generation_tokens - room
        return Sample(
            id=sample_id(self, at, sources),
            task=self.name,
            index=at.index,
            problem=Problem(Context(filled.pieces, filled.separator), asked.question),
            golds=filled.golds,
            match=self.match,
            evidence=filled.evidence,
            meta=filled.meta,
            prompt=asked.prompt,
            sizes=Sizes(filled.context_tokens, around + filled.tokens, filled.units),
        )

    def too_short(self, at: Coordinates, room: int, needed: int, tokenizer: str) -> UsageError:
        """The error for a length that leaves `room` tokens for a context that takes `needed`."""
        least = at.length - room + needed
        return UsageError(
            f"{self.name}: length {at.length} is too short for this sample. The question, what is "
            f"hidden, the smallest haystack and the reply budget take {least} tokens with "
            f"tokenizer {tokenizer}: ask for at least {least}."
        )

    def _made(self, at: Coordinates, materials: Materials) -> tuple[AskedT, Filled, int]:
        """What is asked, the haystack, and the tokens that there were for it."""
        measure = meter(materials.tokenizer)
        rng = sample_rng(self, at)
        draft = Draft(at, materials.corpora, measure, rng, self._cell(at, materials))
        asked = self.draw(draft)
        room = at.length - self.generation_tokens - _around(asked.prompt, measure)
        return asked, self.fill(draft, asked, room), room

    def _cell(self, at: Coordinates, materials: Materials) -> PublishedCell:
        steps = self.steps(at, materials.corpora)
        if steps is None:
            return PublishedCell()
        order_seed = cell_seed(self, at)
        if at.index == 0:
            return PublishedCell(steps, order_seed=order_seed)
        units = _first_units(self, replace(at, index=0), materials)
        return PublishedCell(steps, units, order_seed)


def _around(prompt: RulerPrompt, measure: Meter) -> int:
    """Tokens of the prompt without the context and the newlines after it."""
    after = prompt.after.lstrip("\n") + prompt.answer_prefix
    return _before_tokens(prompt.before, measure) + _after_tokens(after, measure)


@once(64)
def _before_tokens(text: str, measure: Meter) -> int:
    """Where the prompt goes on after a space, that space is the context's: its words are counted
    after one. Most families have the same text before every context."""
    if text.endswith(" "):
        return measure.count_once(text.removesuffix(" "))
    return measure.line_once(text)


@once(64)
def _after_tokens(text: str, measure: Meter) -> int:
    return measure.count_once(text)


@once(64)
def _first_units(family: Family[AskedT], first: Coordinates, materials: Materials) -> int:
    """The units of a cell's first sample."""
    filled = family._made(first, materials)[1]
    return filled.units if filled.cell_units is None else filled.cell_units
