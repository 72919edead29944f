"""The facts of a sample: what has to reach the answer, where it stands, and how it is told again.

A fact is a gold answer at the place of the evidence that holds it word for word. Evidence that
holds no gold (a step of a multi-hop question, a yes, a count) is a fact too, but what a memory
would keep of it is a guess: its own words, those of the question and the commonest ones left
out. A gold without evidence anywhere (words to be counted) is looked for as it is, which is a
guess as well: no place of the text holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.types import Match, TokenSpan
from tasks.scoring import RECALL, normalize

CLOSED = frozenset({"yes", "no", "noanswer", "true", "false"})
"""Golds that stand in many texts by chance."""

_FUNCTION_WORDS = """
about after all also and any are at be been before between both but by can could did do does each
for from had has have he her his how if in into is it its just may more most much nor not of on one
only or other our over own same she so some such than that their them then there these they this
those through to under until up was we were what when where which while who whom whose why will
with would you your document
"""
COMMON = frozenset(_FUNCTION_WORDS.split())
"""Words that tell no fact (in the form that `normalize` gives)."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`text` is what it is called. `wordings`: normalized golds, each of which is the whole fact.
    `words`: where it is guessed and there are no wordings, the words to look for."""

    text: str
    place: TokenSpan | None
    wordings: tuple[str, ...]
    words: frozenset[str]
    guessed: bool


def facts_of(row: Mapping[str, Any]) -> tuple[Fact, ...]:
    """The facts of a finished sample, as `Store.sample_rows` gives it, in the order of its
    evidence; without evidence its golds; none where nothing can be looked for (summaries)."""
    match = match_of(row)
    golds = [str(gold) for gold in row["golds"]]
    pieces = [(one["text"], TokenSpan(*one["tokens"])) for one in row["evidence"]]
    question = frozenset(normalize(row["question"]).split())
    if not pieces:
        return _placeless(golds, match)
    if match == "all":
        held = _shared_out(golds, [text for text, _ in pieces])
    else:
        held = [[g for g in golds if _literal(text, g)] for text, _ in pieces]
    facts = []
    for (text, place), inside in zip(pieces, held, strict=True):
        if not inside:
            facts.append(Fact(text, place, (), _telling(text, question), guessed=True))
        elif match == "all":
            facts += [Fact(g, place, (normalize(g),), frozenset(), guessed=False) for g in inside]
        else:
            wordings = tuple(dict.fromkeys(map(normalize, inside)))
            facts.append(Fact(inside[0], place, wordings, frozenset(), guessed=False))
    return tuple(facts)


def match_of(row: Mapping[str, Any]) -> Match:
    """How the golds of a scored sample count, told by the metrics that it was given: an exact
    match exists for aliases of one answer only, a recall for summaries."""
    strict = row["scores"].get("strict", {})
    if RECALL in strict:
        return "summary"
    return "any" if "em" in strict else "all"


def _placeless(golds: Sequence[str], match: Match) -> tuple[Fact, ...]:
    wordings = [normalize(gold) for gold in golds]
    if match == "summary" or not all(wordings):
        return ()
    if match == "any":
        if set(wordings) & CLOSED:
            return ()
        return (Fact(golds[0], None, tuple(dict.fromkeys(wordings)), frozenset(), guessed=True),)
    return tuple(
        Fact(gold, None, (wording,), frozenset(), guessed=True)
        for gold, wording in zip(golds, wordings, strict=True)
    )


def _shared_out(golds: Sequence[str], texts: Sequence[str]) -> list[list[str]]:
    """For each piece of evidence the golds that it tells. Where there are as many of each they
    stand in the same order; else a gold belongs to the first piece that holds it."""
    held: list[list[str]] = [[] for _ in texts]
    in_order = len(golds) == len(texts)
    for number, gold in enumerate(golds):
        places = [n for n, text in enumerate(texts) if _literal(text, gold)]
        if in_order and number in places:
            held[number].append(gold)
        elif places:
            held[places[0]].append(gold)
    return held


def _literal(text: str, gold: str) -> bool:
    words = normalize(gold)
    return words not in CLOSED and bool(words) and f" {words} " in f" {normalize(text)} "


def _telling(text: str, question: frozenset[str]) -> frozenset[str]:
    """The words of a piece of evidence that a memory of it would hold."""
    words = frozenset(normalize(text).split()) - COMMON
    return words - question or words
