"""Questions of the tasks with their facts and haystack lines, as tokens.

RULER's niah and variable tracking (`tasks/ruler/`), whose sentences these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from core.names import base_of
from tasks.fiction.names import KINDS
from tasks.fiction.prose import outlines
from tasks.fiction.world import BITS, world_of
from tasks.haystack.lines import NOISE
from tasks.ruler.needles import LEAST_NUMBER, NUMBERS, needle_text
from tasks.ruler.vt import Chain
from tasks.ruler.words import lexicon
from training.warmstart.prompts import FIXED_TEXTS, between_slots

Ids = list[int]
Key = tuple[int, int]
"""Numbers of an adjective and of a noun."""

STRAY_NEEDLES = 0.03
"""Share of noise lines that are needles not asked for, per key hidden but not asked for."""
SAME_FIRST_WORD = 0.5
"""Of the keys near to one asked for; the others share the second."""
VT_HOPS = 4
VT_LETTERS = 5
VT_VALUES = (10_000, 99_999)
PROSE_WORLD, PROSE_DOCUMENTS = (1 << 32) - 1, 600
"""Where the sentences of prose are from."""


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A task's numbers, and how often it is drawn; `direct` is the factor on its share of
    full-context turns.

    `name`: the task's, with settings where it has some (`vt@hops=2`). `hops`: copies of a chain
    of variables, or documents of a question. `least_tokens`: shorter buckets are not for it.
    """

    name: str
    haystack: Literal["noise", "needle", "prose", "documents", "words"]
    keys: int = 1
    values: int = 1
    queries: int = 1
    weight: float = 1.0
    direct: float = 1.0
    hops: int = VT_HOPS
    least_tokens: int = 0

    @property
    def base(self) -> str:
        """The task without its settings."""
        return base_of(self.name)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line worth remembering: its ids, the entry it becomes, and the part of the line
    [start, end) that must be inside a section for the entry to be written."""

    line: Ids
    entry: Ids
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Story:
    """A question with all its facts, in the order of the text; `question_order`: their numbers
    in the order of the question. `keys`: those asked for, none in variable tracking."""

    shape: TaskShape
    question: Ids
    facts: tuple[Fact, ...]
    question_order: tuple[int, ...]
    keys: tuple[Key, ...] = ()

    @property
    def countable(self) -> bool:
        """Whether the question says how many facts there are."""
        return self.shape.values == 1 and self.shape.base != "vt"


class StoryTeller:
    """Draws stories and haystack lines from an explicit RNG. Holds the tokenizer's pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        def ids(text: str) -> Ids:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        self.ids = ids
        self.fixed = FIXED_TEXTS.map(ids)
        self.adjectives = [ids(f" {word}") for word in lexicon().adjectives]
        self.nouns = [ids(f"-{word}") for word in lexicon().nouns]
        opens, is_, stop = between_slots(needle_text("numbers", "{key}", "{value}"))
        self.needle_opens, self.is_ = ids(opens.rstrip()), ids(is_.rstrip())
        self.stop, self.stop_line = ids(stop), ids(stop + "\n")
        self.comma, self.comma_and = ids(","), ids(", and")
        self.noise, self.spaced_noise = ids(NOISE + "\n"), ids(f" {NOISE}\n")
        self.var, self.spaced_one = ids(" VAR"), ids(" One")
        self.unspaced = {ids(f" {word}")[0]: ids(word)[0] for word in ("The", "VA", "One")}
        """A line's first token where a space stands before it -> without the space."""
        self._heads = [ids(f" {value:03d}")[0] for value in range(1000)]
        self._threes = [ids(f"{value:03d}")[0] for value in range(1000)]
        self._ones = [ids(str(value))[0] for value in range(10)]

    def tell(self, shape: TaskShape, rng: np.random.Generator) -> Story:
        """A story of the task."""
        return self._variables(shape, rng) if shape.base == "vt" else self._niah(shape, rng)

    def hay(self, story: Story, near: float, rng: np.random.Generator) -> Ids:
        """One line of haystack. A needle line shares a word with a key asked for with
        probability `near`: such neighbours are rare by chance and decide the hard cases. Where a
        task hides more keys than it asks for, some lines of noise are needles of others."""
        shape = story.shape
        if shape.base == "vt":
            return self.spaced_noise
        others = STRAY_NEEDLES * (shape.keys - shape.queries)
        if shape.haystack != "needle" and (not others or rng.random() >= others):
            return self.noise if shape.haystack == "noise" else self._sentence(rng)
        key = self._key(rng)
        if story.keys and rng.random() < near:
            other = story.keys[int(rng.integers(len(story.keys)))]
            same_first = rng.random() < SAME_FIRST_WORD
            key = (other[0], key[1]) if same_first else (key[0], other[1])
            if key in story.keys:
                key = self._key(rng)
        return self._needle(self._key_ids(key), rng, prose=shape.haystack == "prose").line

    def any_needle(self, rng: np.random.Generator) -> Fact:
        """A needle of any key."""
        return self._needle(self._key_ids(self._key(rng)), rng)

    def without_newline(self, text: Ids) -> Ids:
        """A text of needle lines without the newline at its end, if one is there."""
        return text[:-1] + self.stop if text[-1:] == self.stop_line else text

    def _sentence(self, rng: np.random.Generator) -> Ids:
        """A sentence of prose behind another."""
        return self.prose[int(rng.integers(len(self.prose)))]

    @cached_property
    def prose(self) -> list[Ids]:
        """Sentences that tell nothing that is asked for, and begin with words of whose first
        token there is one without a space."""
        codes = np.random.default_rng(0).integers(0, len(KINDS) << BITS, PROSE_DOCUMENTS)
        stories = outlines(world_of(PROSE_WORLD), codes).render()
        told = [part for story in stories for part in story.split("\n", 1)[1].split(". ")]
        sentences = [self.ids(f" {part.removesuffix('.')}.") for part in told]
        return [ids for ids in sentences if ids[0] in self.unspaced]

    def _key(self, rng: np.random.Generator) -> Key:
        return int(rng.integers(len(self.adjectives))), int(rng.integers(len(self.nouns)))

    def _key_ids(self, key: Key) -> Ids:
        return self.adjectives[key[0]] + self.nouns[key[1]]

    def _value(self, rng: np.random.Generator) -> Ids:
        """A number of seven digits as three ids: ` 123`, `456`, `7`."""
        number = int(rng.integers(LEAST_NUMBER, LEAST_NUMBER + NUMBERS))
        head, rest = divmod(number, 10_000)
        return [self._heads[head], self._threes[rest // 10], self._ones[rest % 10]]

    def _needle(self, key: Ids, rng: np.random.Generator, prose: bool = False) -> Fact:
        """A needle on a line of its own, or among the sentences of prose."""
        tail = key + self.is_ + self._value(rng)
        start = len(self.needle_opens)
        line = self.needle_opens + tail + self.stop_line
        if prose:
            line = self.spaced_one + self.needle_opens[1:] + tail + self.stop
        return Fact(line, tail + self.stop, start, start + len(tail))

    def _niah(self, shape: TaskShape, rng: np.random.Generator) -> Story:
        """A niah question with the needles asked for, shuffled."""
        keys = [self._key(rng) for _ in range(shape.queries)]
        parts = [self._key_ids(key) for key in keys]
        drawn = [
            (asked, self._needle(part, rng, prose=shape.haystack == "prose"))
            for asked, part in enumerate(parts)
            for _ in range(shape.values)
        ]
        drawn = [drawn[i] for i in rng.permutation(len(drawn))]
        query = list(parts[0])
        for index, part in enumerate(parts[1:], start=1):
            query += (self.comma_and if index == len(parts) - 1 else self.comma) + part
        fixed = self.fixed
        opens = fixed.one_is_hidden + fixed.what_is
        if len(drawn) > 1:
            opens = fixed.some_are_hidden + fixed.what_are
        order = tuple(sorted(range(len(drawn)), key=lambda i: drawn[i][0]))
        facts = tuple(fact for _, fact in drawn)
        return Story(shape, opens + query + fixed.mentioned, facts, order, tuple(keys))

    def _variables(self, shape: TaskShape, rng: np.random.Generator) -> Story:
        """One chain of variables, in MemAgent's form: all lines start with a space."""
        letters = np.array(list(ascii_uppercase))
        names = tuple("".join(rng.choice(letters, VT_LETTERS)) for _ in range(shape.hops + 1))
        value = str(int(rng.integers(*VT_VALUES)))
        facts = []
        for name, line in zip(names, Chain(value, names).lines, strict=True):
            entry = self.ids(f" {name}")
            start = len(self.var)
            fact = Fact(self.ids(f" {line}"), entry + self.stop, start, start + len(entry))
            facts.append(fact)
        fixed = self.fixed
        question = fixed.track + fixed.find + self.ids(f" {value}") + fixed.in_text
        return Story(shape, question, tuple(facts), tuple(range(len(facts))))


def find(ids: Ids, part: Ids) -> int:
    """Where a part begins first; -1 if nowhere."""
    places = range(len(ids) - len(part) + 1)
    return next((at for at in places if ids[at : at + len(part)] == part), -1)


def find_last(ids: Ids, part: Ids, after: int = -1) -> int:
    """Where a part begins last, behind a place; -1 if nowhere."""
    places = range(len(ids) - len(part), after, -1)
    return next((at for at in places if ids[at : at + len(part)] == part), -1)


def joined(entries: Sequence[Ids]) -> Ids:
    """The entries one behind the other."""
    return [token for entry in entries for token in entry]
