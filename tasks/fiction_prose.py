"""Documents of a fictional world in HotpotQA's form: a title, a newline, some sentences.

A document is a row of parts: names and attributes of the world, and fixed text between them.
Parts meet only where every supported tokenizer splits, so the tokens of a document are the
sum of those of its parts, each measured once, and no document is tokenized to be counted.
Worked example (film 5 of world 0):

    The Nameless Island of Talkuth
    The Nameless Island of Talkuth is a feature film released in 1973. The film was directed
    by Yomund Hirvulm. ...

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
from tasks.fiction_names import KINDS
from tasks.fiction_world import (
    ATTRIBUTES,
    BITS,
    FIRST_RELATION,
    NAME_SLOTS,
    PARTNER,
    RELATIONS,
    SELF,
    Ints,
    World,
    code_of,
    entity_of,
    name_parts,
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
        ("It lies in the province of {province}.", "The town is in the province of {province}."),
        ("Its mayor is {mayor}.", "The office of mayor is held by {mayor}."),
        (
            "The town hall was designed by {hall}.",
            "Its town hall is the work of {hall}, who designed it.",
        ),
        ("The town is known for its {speciality}.", "People come here for the {speciality}."),
        ("It is twinned with {partner}.", "The twin town is {partner}."),
    ),
    "film": (
        (
            "{self} is a feature film released in {year}.",
            "{self} is a film that was released in {year}.",
            "{self}, released in {year}, is a film in colour.",
        ),
        ("The film was directed by {director}.", "The director was {director}."),
        ("The music was composed by {composer}.", "It has music composed by {composer}."),
        ("It was produced by the {producer}.", "The {producer} produced it."),
        ("The film was shot in {shot}.", "All outdoor scenes were shot in {shot}."),
        ("It is based on the novel {basis}.", "The story is based on the novel {basis}."),
        ("The film lasts {minutes} minutes.", "Its length is {minutes} minutes."),
    ),
    "novel": (
        (
            "{self} is a novel published in {year}.",
            "{self}, first published in {year}, is a novel.",
            "{self} is a novel that was first published in {year}.",
        ),
        ("It was written by {author}.", "The author of the novel is {author}."),
        ("The book was illustrated by {illustrator}.", "The illustrator was {illustrator}."),
        ("It was published by the {publisher}.", "The publisher was the {publisher}."),
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
        ("It is chaired by {chair}.", "The chair of the board is {chair}."),
        ("The company has its seat in {seat}.", "Its head office is in {seat}."),
        ("It makes {goods}.", "The company is best known for making {goods}."),
    ),
    "school": (
        (
            "{self} is a school opened in {year}.",
            "{self}, opened in {year}, is a place of learning.",
            "{self} is an old school that was opened in {year}.",
        ),
        ("The school is located in {site}.", "It stands in the middle of {site}."),
        ("Its rector is {rector}.", "The school is led by {rector} as rector."),
        ("The patron of the school is {patron}.", "Its patron is {patron}."),
        ("The emblem of the school is a {emblem}.", "On its coat of arms is a {emblem}."),
    ),
}
"""Kind -> the sentences of its documents, each in several wordings. The first stays first."""

_SLOT = re.compile(r" \{(\w+)\}")
_PROBES = [(left, right) for left in ("word", "1907") for right in (".", ",", ")", "\nThe", " a")]
_PROBES += [(". ", "The")[::1], (".\n\n", "Document"), (":\n", "The"), ("(born in", " 1907")][1:]
BATCH = 512
"""Documents rendered at a time."""


@dataclass(frozen=True, eq=False, slots=True)
class Forms:
    """Rows of part numbers; a number below zero is a slot of the document, ~slot.

    `rows`: (kinds x FORMS, columns). `spans[row]`: (first column, end column) of each sentence
    by each fact that it tells. `texts`: all parts. `fingerprint`: of everything.
    """

    rows: Ints
    spans: tuple[Mapping[str, tuple[int, int]], ...]
    texts: NDArray[np.object_]
    fingerprint: str


def slot_columns(kind: str, slot: str) -> list[int]:
    """Columns of `World.slots` that a `{slot}` of a sentence stands for."""
    if slot in ATTRIBUTES[kind]:
        return [NAME_SLOTS + list(ATTRIBUTES[kind]).index(slot)]
    if slot in RELATIONS[kind]:
        about = FIRST_RELATION + list(RELATIONS[kind]).index(slot)
    else:
        about = {"self": SELF, "last": SELF, "partner": PARTNER}[slot]
    return [2 * about + 1] if slot == "last" else [2 * about, 2 * about + 1]


@lru_cache(maxsize=1)
def forms() -> Forms:
    """All wordings, made once."""
    names = name_parts().texts
    # A line starts with a name's first part without its space.
    texts = [*names, *(name[1:] for name in names), "", ":\n", "\n", ".\n\n"]
    number = {text: i for i, text in enumerate(texts) if i >= 2 * len(names)}
    rows: list[list[int]] = []
    spans: list[dict[str, tuple[int, int]]] = []
    rng = random.Random("fiction forms")
    for kind in KINDS:
        for _ in range(FORMS):
            # The title: the start of a line is told by a slot number beyond the last.
            row = [~(SLOT_OF_START), ~1, number["\n"], ~(SLOT_OF_START), ~1]
            span: dict[str, tuple[int, int]] = {}
            first, *rest = (rng.choice(variants) for variants in SENTENCES[kind])
            rng.shuffle(rest)
            for sentence in (first.removeprefix("{self}"), *(f" {text}" for text in rest)):
                start = 3 if not span else len(row)
                slots = _append(row, kind, sentence, texts, number)
                for slot in slots:
                    span[slot] = (start, len(row))
            rows.append(row)
            spans.append(span)
    width = max(map(len, rows))
    padded = [row + [number[""]] * (width - len(row)) for row in rows]
    digest = hashlib.sha256(json.dumps([texts, padded]).encode()).hexdigest()
    return Forms(np.array(padded), tuple(spans), np.array(texts, dtype=object), digest)


SLOT_OF_START = 63
"""Stands in a row for the entity's first part at the start of a line."""


def _append(
    row: list[int], kind: str, sentence: str, texts: list[str], number: dict[str, int]
) -> list[str]:
    """Adds a sentence to a row of parts; gives the slots that it has."""
    pieces = _SLOT.split(sentence)
    for i, piece in enumerate(pieces):
        if i % 2:
            row += [~column for column in slot_columns(kind, piece)]
        elif piece:
            if piece not in number:
                number[piece] = len(texts)
                texts.append(piece)
            row.append(number[piece])
    return pieces[1::2]
