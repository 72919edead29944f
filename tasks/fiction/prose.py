"""Documents of a fictional world in HotpotQA's form: a title, a newline, some sentences.

A document is a row of parts: names and attributes of the world, and fixed text between them.
Parts meet only where every supported tokenizer splits, so the tokens of a document are the
sum of those of its parts, each measured once, and no document is tokenized to be counted.
Worked example (film 5 of world 0):

    The Frozen Ferry of Dandosk
    The Frozen Ferry of Dandosk, released in 1967, is a film in colour. The film has music
    composed by Redwen Nelduth. The director was Jajelle Lervulm. ...

Each kind has FORMS ways of wording, drawn once and for all: which variant of each sentence,
and in what order after the first. Each relation and attribute is told in one sentence of one
document, partners (married people, twin towns) in both of theirs.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.errors import UsageError
from tasks.fiction.names import KINDS
from tasks.fiction.world import (
    ATTRIBUTES,
    BITS,
    FIRST_RELATION,
    NAME_SLOTS,
    PARTNER,
    SLOTS,
    START,
    Entity,
    Ints,
    World,
    code_of,
    name_parts,
    relation_column,
)
from tasks.haystack.measure import Meter
from tasks.once import once
from tasks.questions.documents import Numbered, heading

FORMS = 32
"""Ways of wording for each kind; a power of two."""

SENTENCES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "person": (
        (
            "{self}, born in {year}, is a figure of public life.",
            "{self} (born in {year}) is often in the newspapers.",
            "{self}, who was born in {year}, is widely known.",
        ),
        ("{last} was born in {born}.", "The birthplace of {last} is {born}."),
        ("{last} now lives in {lives}.", "The present home of {last} is in {lives}."),
        ("{last} studied at {studied}.", "As a student, {last} attended {studied}."),
        (
            "The greatest influence on {last} was {influence}.",
            "{last} names {influence} as the greatest influence.",
        ),
        ("{last} is married to {partner}.", "{last} and {partner} are married."),
        ("{last} plays the {instrument}.", "On Sundays {last} plays the {instrument}."),
        ("{last} collects {collection}.", "A passion of {last} is collecting {collection}."),
    ),
    "town": (
        (
            "{self} is a town founded in {year}.",
            "{self} is a small town that was founded in {year}.",
            "{self}, founded in {year}, is a market town.",
        ),
        (
            "The town lies in the province of {province}.",
            "The town is in the province of {province}.",
        ),
        ("Its mayor is {mayor}.", "The office of mayor is held by {mayor}."),
        (
            "The town hall was designed by {hall}.",
            "Its town hall is the work of {hall}, who designed it.",
        ),
        ("The town is known for its {speciality}.", "People come here for the {speciality}."),
        ("The town is twinned with {partner}.", "The twin town is {partner}."),
    ),
    "film": (
        (
            "{self} is a feature film released in {year}.",
            "{self} is a film that was released in {year}.",
            "{self}, released in {year}, is a film in colour.",
        ),
        ("The film was directed by {director}.", "The director was {director}."),
        ("The music was composed by {composer}.", "The film has music composed by {composer}."),
        ("The film was produced by the {producer}.", "The film is a production of the {producer}."),
        ("The film was shot in {shot}.", "All outdoor scenes were shot in {shot}."),
        ("The film is based on the novel {basis}.", "The story is based on the novel {basis}."),
        ("The film lasts {minutes} minutes.", "Its length is {minutes} minutes."),
    ),
    "novel": (
        (
            "{self} is a novel published in {year}.",
            "{self}, first published in {year}, is a novel.",
            "{self} is a novel that was first published in {year}.",
        ),
        ("The novel was written by {author}.", "The author of the novel is {author}."),
        ("The book was illustrated by {illustrator}.", "The illustrator was {illustrator}."),
        ("The novel was published by the {publisher}.", "The publisher was the {publisher}."),
        ("The story is set in {setting}.", "Most chapters are set in {setting}."),
        ("The hero is called {hero}.", "Its hero goes by the name of {hero}."),
        ("The first edition has {pages} pages.", "The book runs to {pages} pages."),
    ),
    "company": (
        (
            "{self} is a company established in {year}.",
            "{self}, established in {year}, is a family business.",
            "{self} is a firm that was established in {year}.",
        ),
        ("The company was founded by {founder}.", "Its founder is {founder}."),
        ("The company is chaired by {chair}.", "The chair of the board is {chair}."),
        ("The company has its seat in {seat}.", "Its head office is in {seat}."),
        ("The company makes {goods}.", "Most of its income is from {goods}."),
    ),
    "school": (
        (
            "{self} is a school opened in {year}.",
            "{self}, opened in {year}, is a place of learning.",
            "{self} is an old school that was opened in {year}.",
        ),
        ("The school is located in {site}.", "The school stands in the middle of {site}."),
        ("Its rector is {rector}.", "The school is led by {rector} as rector."),
        ("The patron of the school is {patron}.", "Its patron is {patron}."),
        ("The emblem of the school is a {emblem}.", "On its coat of arms is a {emblem}."),
    ),
}
"""Kind -> the sentences of its documents, each in several wordings. The first stays first."""

_SLOT = re.compile(r" ?\{(\w+)\}")
_JOINTS = [(left, right) for left in ("word", "1907") for right in (".", ",", ")", "\n")]
_JOINTS.append(("Document 12", ":\n"))
"""Where parts meet besides those places that `tasks.haystack.measure` checks."""

MEASURED, RENDERED = 1_024, 128
"""So many documents at a time: few, where their parts stay in the processor's cache."""


@dataclass(frozen=True, eq=False, slots=True)
class Forms:
    """All wordings, as rows of part numbers; a number below zero is a slot, ~column.

    `rows`: (kinds x FORMS, columns). `uses[row]`: how often each slot stands in it.
    `spans[row]`: fact -> (first, end) column of the sentence that tells it, or of the title.
    `texts`: all parts. `fingerprint`: SHA-256 of everything.
    """

    rows: Ints
    uses: Ints
    spans: tuple[Mapping[str, tuple[int, int]], ...]
    texts: NDArray[np.object_]
    fingerprint: str


@once(1)
def forms() -> Forms:
    """All wordings, drawn once and for all."""
    names = name_parts().texts
    texts = [*names, *(name[1:] for name in names)]
    numbers: dict[str, int] = {}
    rows: list[list[int]] = []
    spans: list[Mapping[str, tuple[int, int]]] = []
    rng = random.Random("fiction forms")
    for kind in KINDS:
        for _ in range(FORMS):
            first, *rest = (rng.choice(variants) for variants in SENTENCES[kind])
            rng.shuffle(rest)
            row: list[int] = []
            span = {"title": (0, 2)}
            _append(row, kind, "{start}\n", texts, numbers)
            for text in (first.replace("{self}", "{start}"), *(f" {text}" for text in rest)):
                start = len(row)
                facts = _append(row, kind, text, texts, numbers)
                span.update((fact, (start, len(row))) for fact in facts)
            rows.append(row)
            spans.append(span)
    width = max(map(len, rows))
    nothing = len(texts)
    texts.append("")
    padded = [row + [nothing] * (width - len(row)) for row in rows]
    digest = hashlib.sha256(json.dumps([texts, padded]).encode()).hexdigest()
    numbered, parts = np.array(padded), np.array(texts, dtype=object)
    uses = np.stack([(numbered == ~slot).sum(axis=1) for slot in range(SLOTS)], axis=1)
    return Forms(numbered, uses, tuple(spans), parts, digest)


def _append(
    row: list[int], kind: str, text: str, texts: list[str], numbers: dict[str, int]
) -> list[str]:
    """Adds a text with slots to a row; gives the slots' names."""
    pieces = _SLOT.split(text)
    for i, piece in enumerate(pieces):
        if i % 2:
            row += [~column for column in _columns(kind, piece)]
        elif piece:
            if piece not in numbers:
                numbers[piece] = len(texts)
                texts.append(piece)
            row.append(numbers[piece])
    return pieces[1::2]


def _columns(kind: str, slot: str) -> list[int]:
    """Columns of `World.slots` that a `{slot}` stands for."""
    if slot == "start":
        return [START, 1]
    if slot == "last":
        return [1]
    if slot in ATTRIBUTES[kind]:
        return [NAME_SLOTS + list(ATTRIBUTES[kind]).index(slot)]
    about = PARTNER if slot == "partner" else FIRST_RELATION + relation_column(kind, slot)
    return [2 * about, 2 * about + 1]


@dataclass(frozen=True, eq=False, slots=True)
class Outlines:
    """Documents to be measured and rendered: what each tells, and in which words.

    `slots`: (n, SLOTS), see `World.slots`; `wordings`: (n,), the row of `forms` that each follows.
    """

    slots: NDArray[np.int32]
    wordings: Ints

    def __len__(self) -> int:
        return len(self.wordings)

    def __getitem__(self, which: slice | Ints) -> Outlines:
        return Outlines(self.slots[which], self.wordings[which])

    def __add__(self, more: Outlines) -> Outlines:
        return Outlines(
            np.concatenate([self.slots, more.slots]),
            np.concatenate([self.wordings, more.wordings]),
        )

    def rows(self) -> Ints:
        """Parts of the documents (n, columns)."""
        rows = forms().rows[self.wordings]
        own_slots = SLOTS * np.arange(len(self))[:, None]
        filled = self.slots.ravel()[own_slots + np.maximum(~rows, 0)]
        return np.where(rows < 0, filled, rows)

    def render(self) -> list[str]:
        """The documents."""
        return ["".join(parts) for parts in forms().texts[self.rows()].tolist()]


def outlines(world: World, codes: Ints) -> Outlines:
    """The documents of the entities."""
    slots = np.empty((len(codes), SLOTS), dtype=np.int32)
    drawn = np.empty_like(codes)
    for start in range(0, len(codes), MEASURED):
        batch = slice(start, start + MEASURED)
        slots[batch], drawn[batch] = world.slots(codes[batch])
    return Outlines(slots, (codes >> BITS) * FORMS + drawn % FORMS)


def sentences_of(world: World, told: Sequence[tuple[Entity, str]]) -> list[tuple[int, str]]:
    """For each entity and fact: the sentence of the entity's document that tells the fact (or
    its title, for `title`), and the character at which it starts there."""
    stories = outlines(world, np.array([code_of(entity) for entity, _ in told]))
    rows = forms().texts[stories.rows()].tolist()
    sentences: list[tuple[int, str]] = []
    for (_, fact), parts, wording in zip(told, rows, stories.wordings, strict=True):
        first, end = forms().spans[wording][fact]
        before, sentence = "".join(parts[:first]), "".join(parts[first:end])
        sentences.append((len(before) + sentence.startswith(" "), sentence.removeprefix(" ")))
    return sentences


class NumberedStories(Numbered):
    """Documents of a world, rendered on access."""

    __slots__ = ("stories",)

    def __init__(self, stories: Outlines) -> None:
        self.stories = stories

    def __len__(self) -> int:
        return len(self.stories)

    def document(self, index: int) -> str:
        return self.stories[index : index + 1].render()[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self.stories), RENDERED):
            batch = self.stories[start : start + RENDERED].render()
            for number, story in enumerate(batch, start + 1):
                yield heading(number) + story


# -- tokens ----------------------------------------------------------------------------------


def story_tokens(stories: Outlines, measure: Meter) -> Ints:
    """Tokens of each document with the colon and newline before it and the blank line after."""
    known, fixed = _part_tokens(measure)
    around = measure.line(":\n") + measure.line(".\n\n") - measure.count(".")
    tokens: Ints = fixed[stories.wordings] + around
    for start in range(0, len(stories), MEASURED):
        batch = stories[start : start + MEASURED]
        slot_tokens, uses = known[batch.slots], forms().uses[batch.wordings]
        tokens[start : start + MEASURED] += np.einsum("ns,ns->n", slot_tokens, uses)
    return tokens


@once(4)
def _part_tokens(measure: Meter) -> tuple[Ints, Ints]:
    """Tokens of every part, and of all the fixed text of each row of `forms`.

    Raises:
        UsageError: the tokenizer joins what stands on both sides of a joint of parts.
    """
    for left, right in _JOINTS:
        if not measure.tokenizer.splits_between(left, right):
            raise UsageError(
                f"tokenizer {measure.tokenizer.name}: its pre-tokenizer does not split between "
                f"{left!r} and {right!r}, so documents cannot be measured by their parts. "
                "Expected one that splits words and numbers from punctuation (Qwen2, Llama 3 "
                "and GPT-2 do)."
            )
    rows = forms().rows
    known = _count_parts(measure)
    return known, np.where(rows < 0, 0, known[rows]).sum(axis=1)


def _count_parts(measure: Meter) -> Ints:
    """Tokens of every part. A text is cut before each space, so the words of names count one by
    one: each after a space, and the first of a name also at the start of a line."""
    names = [name.split() for name in name_parts().texts]
    words = list(dict.fromkeys(word for name in names for word in name))
    inside = dict(zip(words, measure.spaced(words).tolist(), strict=True))
    firsts = list(dict.fromkeys(first for first, *_ in names))
    lines = measure.lines([f"{word}\n" for word in firsts]) - measure.line("\n")
    at_start = dict(zip(firsts, lines.tolist(), strict=True))
    fixed = forms().texts[2 * len(names) :].tolist()
    tokens = [
        *(sum(inside[word] for word in name) for name in names),
        *(at_start[first] + sum(inside[word] for word in rest) for first, *rest in names),
        *(measure.line(text) if text == "\n" else measure.count(text) for text in fixed),
    ]
    return np.array(tokens)
