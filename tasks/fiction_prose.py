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
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from core.errors import UsageError
from tasks.documents import heading
from tasks.fiction_names import KINDS
from tasks.fiction_world import (
    ATTRIBUTES,
    BITS,
    FIRST_RELATION,
    NAME_SLOTS,
    PARTNER,
    START,
    Entity,
    Ints,
    World,
    code_of,
    name_parts,
    relation_column,
)
from tasks.lines import LazyLines
from tasks.measure import Meter

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
"""Where parts meet besides those places that `tasks.measure` checks."""

_WORD = re.compile(" ?[^ \0]+")

BATCH = 512
"""Documents rendered at a time."""


@dataclass(frozen=True, eq=False, slots=True)
class Forms:
    """All wordings, as rows of part numbers; a number below zero is a slot, ~column.

    `rows`: (kinds x FORMS, columns). `spans[row]`: fact -> (first, end) column of the sentence
    that tells it, or of the title. `texts`: all parts. `fingerprint`: SHA-256 of everything.
    """

    rows: Ints
    spans: tuple[Mapping[str, tuple[int, int]], ...]
    texts: NDArray[np.object_]
    fingerprint: str


@lru_cache(maxsize=1)
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
    return Forms(np.array(padded), tuple(spans), np.array(texts, dtype=object), digest)


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


def rows_of(world: World, codes: Ints) -> tuple[Ints, Ints]:
    """Parts of the documents (n, columns), and the row of `forms` that each follows (n,)."""
    slots, wording = world.slots(codes)
    wordings = (codes >> BITS) * FORMS + wording % FORMS
    rows = forms().rows[wordings]
    filled = np.take_along_axis(slots, np.maximum(~rows, 0), axis=1)
    return np.where(rows < 0, filled, rows), wordings


def render(world: World, codes: Ints) -> list[str]:
    """The documents of the entities."""
    rows, _ = rows_of(world, codes)
    return ["".join(parts) for parts in forms().texts[rows].tolist()]


def sentences_of(world: World, told: Sequence[tuple[Entity, str]]) -> list[tuple[int, str]]:
    """For each entity and fact: the sentence of the entity's document that tells the fact (or
    its title, for `title`), and the character at which it starts there."""
    rows, wordings = rows_of(world, np.array([code_of(entity) for entity, _ in told]))
    sentences: list[tuple[int, str]] = []
    for (_, fact), parts, wording in zip(told, forms().texts[rows].tolist(), wordings, strict=True):
        first, end = forms().spans[wording][fact]
        before, sentence = "".join(parts[:first]), "".join(parts[first:end])
        sentences.append((len(before) + sentence.startswith(" "), sentence.removeprefix(" ")))
    return sentences


class NumberedStories(LazyLines):
    """Documents of a world, each under its number in the haystack; rendered on access."""

    __slots__ = ("codes", "world")

    def __init__(self, world: World, codes: Ints) -> None:
        self.world = world
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def line(self, index: int) -> str:
        return heading(index + 1) + render(self.world, self.codes[index : index + 1])[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self.codes), BATCH):
            stories = render(self.world, self.codes[start : start + BATCH])
            for number, story in enumerate(stories, start + 1):
                yield f"Document {number}:\n{story}"


# -- tokens ----------------------------------------------------------------------------------


def story_tokens(world: World, codes: Ints, measure: Meter) -> Ints:
    """Tokens of each document with the colon and newline before it and the blank line after."""
    known = _part_tokens(measure)
    around = measure.line(":\n") + measure.line(".\n\n") - measure.count(".")
    batches = [
        known[rows_of(world, codes[start : start + BATCH])[0]].sum(axis=1)
        for start in range(0, len(codes), BATCH)
    ]
    return np.concatenate(batches) + around if batches else codes


@lru_cache(maxsize=4)
def _part_tokens(measure: Meter) -> Ints:
    """Tokens of every part.

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
    # A text is cut before each space, so its words count one by one, with their spaces.
    texts: list[str] = forms().texts.tolist()
    distinct = dict.fromkeys(_WORD.findall("\0".join(texts)))
    inner = [word for word in distinct if word.startswith(" ")]
    first = [word for word in distinct if word[0].isalnum()]
    tokens = dict(zip(inner, _counted_together(measure, "", inner), strict=True))
    tokens |= dict(zip(first, _counted_together(measure, "\n", first), strict=True))
    for word in distinct:
        if word not in tokens:
            tokens[word] = measure.line(word) if word == "\n" else measure.count(word)
    return np.array(
        [tokens.get(text) or sum(tokens[word] for word in _WORD.findall(text)) for text in texts]
    )


def _counted_together(measure: Meter, before: str, words: Sequence[str]) -> list[int]:
    """Tokens of each word, from one run of the tokenizer over all of them. Each starts, with
    `before`, in white space, and no other token of a word does."""
    ids = np.array(measure.tokenizer.encode("".join(before + word for word in words)))
    known, place = np.unique(ids, return_inverse=True)
    opens = [measure.tokenizer.decode_bytes([int(i)])[:1] in (b" ", b"\n") for i in known]
    starts = np.flatnonzero(np.array(opens)[place])
    if len(starts) != len(words):
        return [measure.count_once(word) for word in words]
    tokens: list[int] = np.diff(starts, append=len(ids)).tolist()
    return [count - measure.line(before) for count in tokens] if before else tokens
