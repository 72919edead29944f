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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core.errors import UsageError
from core.types import Evidence, Match, RulerPrompt
from tasks.corpora.read import Corpora
from tasks.haystack.family import Asked, Draft, Family, Filled
from tasks.haystack.lines import NOISE, Inserted, Repeated, insertion_points
from tasks.haystack.measure import Meter, edge_tokens
from tasks.haystack.published_cells import Steps
from tasks.scoring import ALL, GoldScorer
from tasks.task import Coordinates, check_depth

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
class AskedChains(Asked):
    """The chains of a sample; the first is asked for."""

    chains: tuple[Chain, ...]


@dataclass(frozen=True, slots=True)
class VariableTracking(Family[AskedChains]):
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

    def steps(self, at: Coordinates, corpora: Corpora) -> Steps | None:
        """Units of a cell are noise lines."""
        return Steps(LINE_STEP) if self.published else None

    def draw(self, draft: Draft) -> AskedChains:
        """Chains of variables; the value of the first is asked for."""
        chains = _draw_chains(draft.rng, self.chains, self.hops)
        names, value = chains[0].names, chains[0].value
        before = INSTRUCTION + "\n\n"
        if self.form == "ruler":
            before = self._worked_example(draft) + "\n\n" + before
        ask, prefix = ASK.format(value=value), ANSWER_PREFIX.format(names=len(names), value=value)
        return AskedChains(
            RulerPrompt(before, "\n" + ask, prefix), f"{INSTRUCTION} {ask}", tuple(chains)
        )

    def fill(self, draft: Draft, asked: AskedChains, room: int) -> Filled:
        """Unit: a noise line."""
        key, measure, cell = draft.rng.getrandbits(64), draft.measure, draft.cell
        ruler = self.form == "ruler"
        noise = NOISE if ruler else NOISE + "\n"
        hidden = sum(_unit_tokens(measure, ruler, one) for c in asked.chains for one in c.lines)
        each = _unit_tokens(measure, ruler, noise)
        least = max(self.hops + 1, cell.steps.size)
        # One line more than fits, then back: the edges' own tokens depend on the layout.
        units = max(cell.within((room - hidden) // each + 1), least)
        while True:
            pieces, places = _lay_out(random.Random(key), noise, units, asked.chains, self.depth)
            tokens = hidden + each * units
            if not ruler:
                tokens += edge_tokens(measure, pieces[0], pieces[-1])
            if tokens <= room or units == least:
                break
            units = max(cell.within(units - 1), least)
        end = "\n" + pieces[-1] if ruler else " " + pieces[-1]
        newline = measure.line(end + "\n") - measure.count(end.rstrip("\n"))
        chain = asked.chains[0]
        lines = [line.rstrip() for line in chain.lines]
        return Filled(
            pieces,
            "\n" if ruler else " ",
            golds=chain.names,
            tokens=tokens,
            context_tokens=tokens - newline,
            units=units,
            evidence=tuple(
                Evidence(place, 0, len(line), line)
                for place, line in zip(places, lines, strict=True)
            ),
            meta={"value": chain.value, "depths": [place / len(pieces) for place in places]},
        )

    def _worked_example(self, draft: Draft) -> str:
        """RULER's example before the question: the same task in 16 lines, with its answer. Its
        names are the sample's, the rest is the cell's."""
        example_rng = draft.cell.order_rng(draft.rng)
        names = _draw_names(draft.rng, self.hops + 1, EXAMPLE_NAME_LETTERS)
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
