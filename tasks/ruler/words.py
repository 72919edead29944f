"""RULER's word keys: an adjective and a noun of the wonderwords lists, joined by a hyphen.

Source: RULER, scripts/data/synthetic/niah.py (`words = sorted(set(adj + "-" + noun))`).
RULER builds all six million pairs at every start; here a pair is a number, and only the pairs
that are drawn are ever made. No two pairs of these lists read the same ("a-b" + "c", "a" +
"b-c"), so each is as likely as with RULER.

Example: pair 0 is the first adjective with the first noun, pair 1 the first with the second.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from importlib import resources

from core.errors import DataMissing
from tasks.once import once


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Sorted distinct words of each kind. `fingerprint`: SHA-256 of the three lists."""

    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    fingerprint: str

    @property
    def pairs(self) -> int:
        """How many adjective-noun pairs there are."""
        return len(self.adjectives) * len(self.nouns)

    def pair(self, number: int) -> str:
        """Pair `number` as text: `adjective-noun`."""
        adjective, noun = divmod(number, len(self.nouns))
        return f"{self.adjectives[adjective]}-{self.nouns[noun]}"

    def pair_numbers(self, text: str) -> list[int]:
        """The numbers of all pairs that read `text`."""
        hyphens = [i for i, char in enumerate(text) if char == "-"]
        halves = [(text[:i], text[i + 1 :]) for i in hyphens]
        return [
            a * len(self.nouns) + n
            for left, right in halves
            if (a := _find(self.adjectives, left)) is not None
            and (n := _find(self.nouns, right)) is not None
        ]


@once(1)
def lexicon() -> Lexicon:
    """The word lists of the installed wonderwords package, read once."""
    lists = tuple(_read(f"{kind}list.txt") for kind in ("adjective", "noun", "verb"))
    text = "\n\n".join("\n".join(words) for words in lists)
    return Lexicon(lists[0], lists[1], lists[2], hashlib.sha256(text.encode()).hexdigest())


def _read(name: str) -> tuple[str, ...]:
    try:
        text = resources.files("wonderwords.assets").joinpath(name).read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise DataMissing(
            f"the word list {name} of the package wonderwords cannot be read ({error}). "
            "Install it again: pip install wonderwords==3.0.1"
        ) from error
    return tuple(sorted({word.strip() for word in text.splitlines() if word.strip()}))


def _find(words: tuple[str, ...], word: str) -> int | None:
    place = bisect_left(words, word)
    return place if place < len(words) and words[place] == word else None
