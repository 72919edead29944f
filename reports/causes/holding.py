"""Whether a text holds a fact: word for word, with an error, or not at all.

Word for word is what strict scoring takes for it: the gold's normalized words in a row. With an
error: a run of as many words resembles the gold (difflib's ratio at least NEAR), and stands
neither in the question nor in another gold. A guessed fact is held where at least half of its
words are; it is never told to be held with an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from enum import IntEnum
from functools import cached_property

from reports.causes.facts import Fact
from tasks.scoring import normalize

NEAR = 0.7
LEAST_NEAR_CHARS = 4
"""Shorter golds have too many neighbours."""
GUESS_SHARE = 0.5

_LIST_MARKS = re.compile(r"[,;|]")
_TIGHT_MARK = re.compile(r"[,;|](?=\S)")
_SENTENCE_END = re.compile(r"\n|(?<=[.!?;])\s")


class Held(IntEnum):
    """How a text holds a fact."""

    NO = 0
    BLURRED = 1
    WHOLE = 2


class Text:
    """A text to look in; normalized once, whatever is looked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def padded(self) -> str:
        """Its normalized words between spaces; of a list without spaces, parted as well."""
        words = f" {normalize(self.text)} "
        if _TIGHT_MARK.search(self.text):
            words += f"\n {normalize(_LIST_MARKS.sub(' ', self.text))} "
        return words

    @cached_property
    def words(self) -> list[str]:
        """Its normalized words, in order."""
        return self.padded.split()

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Its different words."""
        return frozenset(self.words)

    @cached_property
    def sentences(self) -> list[Text]:
        """Its lines, and the sentences of each."""
        return [Text(part) for part in _SENTENCE_END.split(self.text) if part.strip()]


class Search:
    """Looks for one fact in the texts of one sample; a run of words is compared once."""

    def __init__(self, fact: Fact, never: Collection[Text] = ()) -> None:
        """`never`: texts whose runs of words are not taken for a blurred fact."""
        self.fact = fact
        self._matchers = [
            (len(wording.split()), SequenceMatcher(None, "", wording, autojunk=False))
            for wording in fact.wordings
            if len(wording) >= LEAST_NEAR_CHARS
        ]
        self._near: dict[str, bool] = {}
        for text in never:
            self.ignore(text)

    def ignore(self, text: Text) -> None:
        """Takes no run of words of this text for the fact with an error."""
        for size, _ in self._matchers:
            self._near |= dict.fromkeys(_runs(text, size), False)

    def held(self, text: Text) -> Held:
        """How the text holds the fact."""
        if self.fact.words:
            share = len(self.fact.words & text.vocabulary) / len(self.fact.words)
            return Held.WHOLE if share >= GUESS_SHARE else Held.NO
        if self.whole(text):
            return Held.WHOLE
        return Held.BLURRED if self._blurred(text) else Held.NO

    def whole(self, text: Text) -> bool:
        """Whether the text holds a gold word for word."""
        return any(f" {wording} " in text.padded for wording in self.fact.wordings)

    def wording(self, text: Text) -> str:
        """The words in which the text tells the fact: the sentences that hold it."""
        if self.fact.words:
            return " ".join(sorted(self.fact.words & text.vocabulary))
        return "\n".join(one.padded.strip() for one in text.sentences if self.whole(one))

    def _blurred(self, text: Text) -> bool:
        return any(
            self._resembles(run, matcher)
            for size, matcher in self._matchers
            for run in _runs(text, size)
        )

    def _resembles(self, run: str, matcher: SequenceMatcher[str]) -> bool:
        known = self._near.get(run)
        if known is None:
            matcher.set_seq1(run)
            known = (
                matcher.real_quick_ratio() >= NEAR
                and matcher.quick_ratio() >= NEAR
                and matcher.ratio() >= NEAR
            )
            self._near[run] = known
        return known


def _runs(text: Text, size: int) -> list[str]:
    """All runs of so many words; all of a shorter text."""
    words = text.words
    return [" ".join(words[n : n + size]) for n in range(max(len(words) - size + 1, 1))]
