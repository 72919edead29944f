"""Variable tracking: a chain of assignments hidden in noise.

Source: RULER (arXiv:2404.06654), section 3 and appendix B; generator
https://github.com/NVIDIA/RULER/blob/main/scripts/data/synthetic/variable_tracking.py. The
question's form is MemAgent's, whose contexts end each noise line with a newline and join all
lines by spaces (`form="memagent"`); RULER joins by newlines and shows a worked example first
(`form="ruler"`). Worked example:

    context   The grass is green. ... There and back again.
               VAR RTYKT = 66886 The grass is green. ... There and back again.
               VAR EKCMK = VAR RTYKT  The grass is green. ...
    question  Memorize and track the chain(s) of variable assignment hidden in the following
              text. Question: Find all variables that are assigned the value 66886 in the
              text above.
    golds     RTYKT, EKCMK, ... (all of them)

Differences from RULER, each of which `published=true` takes back: a sample is filled to the
length by itself (there, those of a cell have one number of lines, see
`tasks.haystack.published_cells`); the example is drawn for each sample, where RULER has one for a
cell and changes the names only.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core.context import Context
from core.errors import UsageError
from core.types import Evidence, Json, Match, Problem, Sample
from tasks.haystack.lines import NOISE, Inserted, Repeated, insertion_points
from tasks.haystack.measure import Meter, edge_tokens, meter, too_short
from tasks.haystack.published_cells import Cell, published_cell
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, Materials, check_depth, parameters_of, sample_id, sample_rng

INSTRUCTION = "Memorize and track the chain(s) of variable assignment hidden in the following text."
ASK = "Question: Find all variables that are assigned the value {value} in the text above."
ANSWER_PREFIX = (
    " Answer: According to the chain(s) of variable assignment in the text above, {names} "
    "variables are assigned the value {value}, they are: "
)

NAME_LETTERS = 5
EXAMPLE_NAME_LETTERS = 3
EXAMPLE_NOISE_LINES = 16
LEAST_VALUE, VALUES = 10_000, 89_999
"""Values are 10000..99998."""

LINE_STEP = 10
"""Lines that the published generators add at a time."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Variables that get one value after another: `names[0]` is assigned `value` itself."""

    value: str
    names: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The assignments in order; those of variables end with a space, as published."""
        copies = zip(self.names[1:], self.names, strict=False)
        return [
            f"VAR {self.names[0]} = {self.value}",
            *(f"VAR {name} = VAR {source} " for name, source in copies),
        ]


@dataclass(frozen=True, slots=True)
class Hay:
    """A filled haystack; `places` are the pieces of the first chain's lines. `tokens` counts
    the context and the newline after it, which takes `newline_tokens` more than without
    outer white space."""

    separator: str
    pieces: Sequence[str]
    places: Sequence[int]
    units: int
    tokens: int
    newline_tokens: int


@dataclass(frozen=True, slots=True)
class VariableTracking:
    """`chains` chains of `hops` copies each; the first chain is asked for. `depth` puts its
    first line at that share of the haystack (0 to 1), the others at random places after it.
    `published` makes cells as the published generators do, see above."""

    name: str
    summary: str
    chains: int = 1
    hops: int = 4
    form: Literal["memagent", "ruler"] = "memagent"
    generation_tokens: int = 30
    depth: float | None = None
    published: bool = False
    source: ClassVar[str] = "RULER (arXiv:2404.06654), section 3, variable tracking; PROTOCOL 2.2"
    match: ClassVar[Match] = "all"
    scorer: ClassVar[GoldScorer] = ALL

    def __post_init__(self) -> None:
        check_depth(self.name, self.depth)
        if self.chains < 1 or self.hops < 1:
            raise UsageError(
                f"{self.name}: got {self.chains} chains of {self.hops} hops, "
                "expected at least one of each"
            )

    @property
    def parameters(self) -> Mapping[str, Json]:
        return parameters_of(self)

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`. Unit: a noise line."""
        index, length, seed = at.index, at.length, at.seed
        tokenizer, corpora = materials.tokenizer, materials.corpora
        rng = sample_rng(self, at)
        cell = Cell()
        if self.published:
            make = VariableTracking.sample
            cell = published_cell(
                make, self, index, length, seed, tokenizer, corpora, step=LINE_STEP
            )
        chains = _draw_chains(rng, self.chains, self.hops)
        asked = chains[0]
        before = INSTRUCTION + "\n\n"
        if self.form == "ruler":
            before = self._worked_example(rng, cell.order_rng(rng)) + "\n\n" + before
        after = "\n" + ASK.format(value=asked.value)
        prefix = ANSWER_PREFIX.format(names=len(asked.names), value=asked.value)

        measure = meter(tokenizer)
        around = measure.line_once(before) + measure.count_once(after.lstrip("\n") + prefix)
        room = length - self.generation_tokens - around
        hay = self._fill(rng, chains, room, cell, measure)
        if hay.tokens > room:
            raise too_short(self.name, length, length - room + hay.tokens, tokenizer)
        return Sample(
            id=sample_id(self, at, {"tokenizer": tokenizer.fingerprint}),
            task=self.name,
            index=index,
            problem=Problem(
                Context(hay.pieces, hay.separator),
                f"{INSTRUCTION} {ASK.format(value=asked.value)}",
            ),
            golds=asked.names,
            match=self.match,
            evidence=tuple(
                Evidence(place, 0, len(line.rstrip()), line.rstrip())
                for place, line in zip(hay.places, asked.lines, strict=True)
            ),
            meta={
                "value": asked.value,
                "depths": [place / len(hay.pieces) for place in hay.places],
                "units": hay.units,
                "context_tokens": hay.tokens - hay.newline_tokens,
                "prompt_tokens": around + hay.tokens,
                "ruler_before": before,
                "ruler_after": after,
                "answer_prefix": prefix,
            },
        )

    def _fill(
        self, rng: random.Random, chains: Sequence[Chain], room: int, cell: Cell, measure: Meter
    ) -> Hay:
        """The fullest haystack of at most `room` tokens, or the least one there can be."""
        key = rng.getrandbits(64)
        ruler = self.form == "ruler"
        noise = NOISE if ruler else NOISE + "\n"
        hidden = sum(_unit_tokens(measure, ruler, line) for c in chains for line in c.lines)
        each = _unit_tokens(measure, ruler, noise)
        least = max(self.hops + 1, cell.step)
        # One line more than fits, then back: the edges' own tokens depend on the layout.
        units = max(cell.within((room - hidden) // each + 1), least)
        while True:
            pieces, places = _lay_out(random.Random(key), noise, units, chains, self.depth)
            tokens = hidden + each * units
            if not ruler:
                tokens += edge_tokens(measure, pieces[0], pieces[-1])
            if tokens <= room or units == least:
                break
            units = max(cell.within(units - 1), least)
        end = "\n" + pieces[-1] if ruler else " " + pieces[-1]
        newline = measure.line(end + "\n") - measure.count(end.rstrip("\n"))
        return Hay("\n" if ruler else " ", pieces, places, units, tokens, newline)

    def _worked_example(self, rng: random.Random, example_rng: random.Random) -> str:
        """RULER's example before the question: the same task in 16 lines, with its answer.
        `rng` draws its names, `example_rng` the rest."""
        names = _draw_names(rng, self.hops + 1, EXAMPLE_NAME_LETTERS)
        (value,) = _draw_values(example_rng, 1)
        chain = Chain(value, names)
        noise_lines = max(EXAMPLE_NOISE_LINES, self.hops + 1)
        pieces, _ = _lay_out(example_rng, NOISE, noise_lines, [chain])
        context = "\n".join(pieces)
        question = ASK.format(value=chain.value)
        prefix = ANSWER_PREFIX.format(names=len(chain.names), value=chain.value)
        return f"{INSTRUCTION}\n\n{context}\n{question}{prefix} {' '.join(chain.names)}"


def _draw_chains(rng: random.Random, chains: int, hops: int) -> list[Chain]:
    """Chains whose names and values are all different."""
    per_chain = hops + 1
    names = _draw_names(rng, chains * per_chain, NAME_LETTERS)
    return [
        Chain(value, names[i * per_chain : (i + 1) * per_chain])
        for i, value in enumerate(_draw_values(rng, chains))
    ]


def _draw_names(rng: random.Random, count: int, letters: int) -> tuple[str, ...]:
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(rng.choices(string.ascii_uppercase, k=letters))] = None
    return tuple(names)


def _draw_values(rng: random.Random, count: int) -> list[str]:
    return list(map(str, rng.sample(range(LEAST_VALUE, LEAST_VALUE + VALUES), count)))


def _lay_out(
    rng: random.Random,
    noise: str,
    units: int,
    chains: Sequence[Chain],
    depth: float | None = None,
) -> tuple[Inserted, list[int]]:
    """The haystack, and the places of the first chain's lines. As in RULER, each chain goes
    between the lines that are there before it, and nothing after the last."""
    inserted: dict[int, str] = {}
    asked: list[int] = []
    # The first chain last: then its places are final.
    for chain in reversed(chains):
        share = depth if chain is chains[0] else None
        asked = insertion_points(rng, units + len(inserted), len(chain.lines), share)
        taken = set(asked)
        free = [i for i in range(max([*inserted, 0]) + len(asked) + 1) if i not in taken]
        inserted = {free[old]: line for old, line in inserted.items()}
        inserted |= dict(zip(asked, chain.lines, strict=True))
    return Inserted(Repeated(noise, units), inserted), asked


def _unit_tokens(measure: Meter, ruler: bool, line: str) -> int:
    """Tokens of a line with what joins it: a newline after it, or a space before it."""
    return measure.line(line + "\n") if ruler else measure.count(" " + line)
