"""What becomes of facts from turn to turn, and the decay with length that follows from it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from agents.memagent import NO_MEMORY
from core.types import TokenSpan, Turn
from reports.causes.cause import Diagnosis
from reports.causes.decay import EmptyMemories, FactsKept, expected, expected_empty
from reports.causes.lifeline import Lifeline


def line(
    read: int | None,
    stored: int | None = None,
    lost: int | None = None,
    blurred: int | None = None,
    answer: bool = False,
    guessed: bool = False,
) -> Lifeline:
    held = stored is not None and lost is None
    return Lifeline(
        "7", TokenSpan(0, 1), read, stored, (), lost, blurred, held, answer, guessed=guessed
    )


def kept(last: int | None, *lines: Lifeline) -> FactsKept:
    found = FactsKept()
    found.add(Diagnosis(None, lines, last_memory_turn=last))
    return found


def test_facts_are_counted_by_what_became_of_them() -> None:
    found = kept(
        10,
        line(2, stored=2, answer=True),
        line(3, stored=4),
        line(1, stored=1, lost=5, blurred=5),
        line(6, stored=6, lost=7),
        line(8, blurred=9),
        line(9, answer=True),  # in the answer alone: guessed, not remembered
        line(None),
        line(4, stored=4, guessed=True),
    )
    assert found == FactsKept(
        Counter({8: 1, 7: 1, 9: 1, 4: 1, 2: 1, 1: 1}),
        stored=4,
        turns=8 + 6 + 4 + 1,
        lost=2,
        blurred=2,
        held=2,
        answered=1,
    )
    assert found.read == 6
    assert kept(None, line(0)) == FactsKept()


def test_what_the_rates_of_other_lengths_make_of_a_cell() -> None:
    other = FactsKept(Counter({5: 10}), stored=8, turns=40, lost=4)
    cell = FactsKept(Counter({0: 1, 2: 3}))
    assert expected(cell, [other]) == pytest.approx((0.8 + 3 * 0.8 * 0.9**2) / 4)
    assert expected(cell, [other, other]) == pytest.approx(expected(cell, [other]))
    assert expected(cell, []) is None
    assert expected(cell, [FactsKept(Counter({0: 3}), stored=3)]) is None  # no turn to lose in
    assert expected(FactsKept(), [other]) is None


def remembered(rng: random.Random, turns: int, stored: float, lost: float) -> FactsKept:
    """Of 4,000 samples with a fact somewhere."""
    found = FactsKept()
    for _ in range(4_000):
        read = rng.randrange(turns)
        gone = None
        if is_stored := rng.random() < stored:
            gone = next((turn for turn in range(read + 1, turns) if rng.random() < lost), None)
        found += kept(turns - 1, line(read, stored=read if is_stored else None, lost=gone))
    return found


def test_one_rate_for_all_lengths_is_found_again() -> None:
    rng = random.Random(3)
    short, long = (remembered(rng, turns, stored=0.9, lost=0.02) for turns in (8, 64))
    told = expected(long, [short])
    assert told == pytest.approx(long.held / long.read, abs=0.04)
    assert long.held / long.read < 0.6 < short.held / short.read
    # Losses in the first turns alone do not grow with length, and are told apart.
    early = FactsKept(Counter({60: 100}), stored=90, turns=90 * 50, lost=5, held=85)
    told = expected(early, [short])
    assert told is not None
    assert told < early.held / early.read - 0.3


def before(memories: list[str | None], *places: int, guessed: bool = False) -> EmptyMemories:
    """Turn n reads token n, and leaves that memory; facts are at `places`."""
    turns = [
        Turn("memory", (), "", "stop", 1, 1, 0.0, (TokenSpan(n, n + 1),), memory)
        for n, memory in enumerate(memories)
    ]
    lines = tuple(
        Lifeline("7", TokenSpan(at, at + 1), at, None, (), None, None, False, False, guessed)
        for at in places
    )
    found = EmptyMemories()
    found.add(Diagnosis(None, lines), turns)
    return found


def test_what_is_noted_before_the_first_fact_is_counted() -> None:
    nothing = NO_MEMORY
    clean = before([nothing, "", nothing, "fact: 7", None], 2)
    assert clean == EmptyMemories(turns=2, waits=Counter({2: 1}), empty=1)
    misled = before([nothing, "wrong: 8", "wrong: 8", "wrong: 9", None], 3)
    assert misled == EmptyMemories(turns=2, noted=1, waits=Counter({3: 1}))
    first = before(["fact: 7", "fact: 7", None], 1, 0)  # the earliest fact counts
    assert first == EmptyMemories(waits=Counter({0: 1}), empty=1)
    never = before([nothing, "wrong: 8"], 9)  # it stopped before the fact
    assert never == EmptyMemories(turns=2, noted=1, waits=Counter({9: 1}))
    assert before([nothing, nothing], 1, guessed=True) == EmptyMemories()
    assert before([nothing]) == EmptyMemories()


def test_a_rate_of_wrong_notes_makes_the_share_of_empty_memories() -> None:
    rng = random.Random(5)

    def read(turns: int) -> EmptyMemories:
        found = EmptyMemories()
        for _ in range(1_000):
            wrong = next((n for n in range(turns) if rng.random() < 0.05), turns)
            memories = [NO_MEMORY if n < wrong else "wrong: 8" for n in range(turns)]
            found += before([*memories, None], rng.randrange(turns))
        return found

    short, long = read(4), read(40)
    told = expected_empty(long, [short])
    assert told == pytest.approx(long.empty / 1_000, abs=0.06)
    assert long.empty / 1_000 < 0.6 < short.empty / 1_000
    assert expected_empty(long, []) is None
    assert expected_empty(EmptyMemories(), [short]) is None
