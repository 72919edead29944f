"""The words of tasks/fiction, as the pocket tokenizer has them.

An invented name is two pieces, onset with vowel and the rest: `Karvosk` is ` Ka` and `rvosk`,
`Jabrel` is ` Ja` and `brel`. There are 64 first and 64 last pieces of roots, 32 and 16 of given
names. All other words are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.fiction.names import GIVEN, PHRASES, ROOTS, VALUES
from tasks.fiction.prose import SENTENCES
from tasks.fiction.wording import ASKED, COMPARED, NAMED, NOUNS
from tasks.fiction.world import ATTRIBUTES, RELATIONS

_SPLIT = re.compile(r"([A-Z][a-z]??[aeio])(.+)")
"""Of an invented name: its first consonants with the vowel, and what follows."""


def name_pieces(name: str) -> tuple[str, str]:
    """An invented name's two pieces.

    >>> name_pieces("Dralkuth")
    ('Dra', 'lkuth')
    """
    split = _SPLIT.fullmatch(name)
    assert split is not None
    return split[1], split[2]


def _pieces(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """All first and all last pieces, each once, in order."""
    firsts, lasts = zip(*map(name_pieces, names), strict=True)
    return list(dict.fromkeys(firsts)), list(dict.fromkeys(lasts))


def _pattern(names: tuple[str, ...]) -> str:
    firsts, lasts = _pieces(names)
    return rf"(?:{'|'.join(firsts)})(?=(?:{'|'.join(lasts)})(?!\p{{L}}))"


NAME_PATTERN = rf"[^\r\n\p{{L}}\p{{N}}]?(?:{_pattern(ROOTS)}|{_pattern(GIVEN)})"
"""The first piece of an invented name; what follows is a word of its own."""


def fiction_words() -> list[str]:
    """Texts whose pre-tokens become vocabulary entries, in a fixed order."""
    words = [f"{ROOTS[0]}.\n\n", " One"]  # a document's end; a needle's beginning in prose
    for names in (ROOTS, GIVEN):
        firsts, lasts = _pieces(names)
        words += [f" {first}{lasts[0]}" for first in firsts]
        words += [f"{first}{lasts[0]}" for first in firsts]
        words += [f"{firsts[0]}{last}" for last in lasts]
    words += [f" {word}" for text in _texts() for word in text.split()]
    firsts = [text.split()[0] for kind in PHRASES for text in PHRASES[kind]]
    return list(dict.fromkeys(words + firsts))


def labels() -> list[str]:
    """What a fact is called in a memory: relations and attributes, each once."""
    return list(dict.fromkeys(name for of in (RELATIONS, ATTRIBUTES) for k in of for name in of[k]))


def _texts() -> Iterator[str]:
    """All fixed texts of documents, questions and memories, and all parts of names."""
    slots = re.compile(r"\{\w*\}")
    for kind, sentences in SENTENCES.items():
        yield from (slots.sub(" ", text) for variants in sentences for text in variants)
        yield from (slots.sub(" ", text) for pair in NOUNS[kind].values() for text in pair)
        yield from (slots.sub(" ", text) for text in ASKED[kind].values())
        yield from (slots.sub(" ", text) for text in COMPARED[kind])
        yield slots.sub(" ", NAMED.get(kind, ""))
        yield from PHRASES[kind]
    for values in VALUES.values():
        yield from values
    yield from (f"{label}:" for label in labels())
