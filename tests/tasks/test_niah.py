"""Needle tasks: wording, order of golds, distributions over many samples."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.haystack.lines import NOISE
from tasks.registry import TASKS
from tasks.ruler.needles import NeedleLines
from tasks.ruler.niah import Niah
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials
from tests.tasks.parts import prompt, sizes

NO_DATA = Corpora(None)


def niah(name: str) -> Niah:
    task = TASKS[name]
    assert isinstance(task, Niah)
    return task


def many(task: Niah, count: int, length: int, tokenizer: Tokenizer) -> list[Sample]:
    return [
        task.sample(Coordinates(i, length, 0), Materials(tokenizer, NO_DATA)) for i in range(count)
    ]


def test_the_question_of_one_value(byte_tokenizer: Tokenizer) -> None:
    sample = many(niah("niah_single_1"), 1, 3_000, byte_tokenizer)[0]
    (key,) = sample.meta["keys"]
    assert sample.problem.question == (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        f"What is the special magic number for {key} mentioned in the provided text?"
    )
    assert prompt(sample).before == (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\n"
    )
    assert prompt(sample).answer_prefix == (
        f" The special magic number for {key} mentioned in the provided text is"
    )
    assert sample.evidence[0].text == (
        f"One of the special magic numbers for {key} is: {sample.golds[0]}."
    )


def test_the_question_of_several_keys(byte_tokenizer: Tokenizer) -> None:
    sample = many(niah("niah_multiquery_noise"), 1, 3_000, byte_tokenizer)[0]
    a, b, c, d = sample.meta["keys"]
    assert sample.problem.question == (
        "Some special magic numbers are hidden within the following text. Make sure to memorize "
        f"it. What are all the special magic numbers for {a}, {b}, {c}, and {d} mentioned in the "
        "provided text?"
    )
    assert [e.text for e in sample.evidence] == [
        f"One of the special magic numbers for {key} is: {gold}."
        for key, gold in zip(sample.meta["keys"], sample.golds, strict=True)
    ]


def test_a_noise_haystack_is_noise_and_needles_and_ends_with_noise(
    byte_tokenizer: Tokenizer,
) -> None:
    for sample in many(niah("niah_multikey_1_noise"), 60, 1_500, byte_tokenizer):
        lines = sample.problem.context.text().split("\n")
        needles = [line for line in lines if line != NOISE]
        assert len(needles) == len(set(needles)) == 4
        assert sum(sample.golds[0] in line for line in needles) == len(sample.golds) == 1
        assert lines[-1] == NOISE
        assert len(lines) == sizes(sample).units + 4


def test_a_needle_haystack_asks_for_a_key_that_occurs_once(byte_tokenizer: Tokenizer) -> None:
    form = re.compile(r"One of the special magic numbers for (.+) is: ([1-9]\d{6})\.")
    for sample in many(niah("niah_multikey_2"), 40, 4_000, byte_tokenizer):
        found = [form.fullmatch(line) for line in sample.problem.context.text().split("\n")]
        keys = Counter(m.group(1) for m in found if m)
        assert all(found)
        assert keys[sample.meta["keys"][0]] == 1


def test_depths_are_uniform(byte_tokenizer: Tokenizer) -> None:
    samples = many(niah("niah_single_1"), 2_000, 4_000, byte_tokenizer)
    tenths = Counter(int(sample.meta["depths"][0] * 10) for sample in samples)
    assert set(tenths) == set(range(10))
    # 33 or so lines do not divide into ten: 0.06 is four standard deviations and a line.
    assert all(abs(tenths[t] / 2_000 - 0.1) < 0.06 for t in range(10))


def test_numbers_and_pairs_are_uniform(byte_tokenizer: Tokenizer) -> None:
    sample = many(niah("niah_multikey_2"), 1, 2_000_000, byte_tokenizer)[0]
    lines = sample.problem.context.pieces.base
    assert isinstance(lines, NeedleLines)
    first_digits = Counter(str(value)[0] for value in lines.values)
    assert set(first_digits) == set("123456789")
    count = len(lines)
    assert all(abs(n / count - 1 / 9) < 0.015 for n in first_digits.values())
    nouns = len(lexicon().nouns)
    halves = Counter(key // nouns < len(lexicon().adjectives) // 2 for key in lines.keys)
    assert abs(halves[True] / count - 0.5) < 0.02


def test_more_needles_than_depths_are_refused() -> None:
    with pytest.raises(UsageError, match="40 depths"):
        replace(niah("niah_multivalue"), values=41)
    with pytest.raises(UsageError, match="at least 1"):
        replace(niah("niah_single_1"), queries=0)


def test_essay_needles_stand_between_sentences(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    task = niah("niah_multivalue")
    for index in range(20):
        sample = task.sample(Coordinates(index, 4_000, 0), Materials(byte_tokenizer, corpora))
        pieces = list(sample.problem.context.pieces)
        places = sorted(e.piece for e in sample.evidence)
        assert len(set(places)) == 4
        for place in places:
            ended = place == 0 or pieces[place - 1].endswith((".", "!", "?", '."'))
            # Depth 100 is the end, and there the words are cut where the length is full.
            assert ended or place == len(pieces) - 1
        essay = " ".join(p for i, p in enumerate(pieces) if i not in places)
        assert " ".join(corpora.essays().words).startswith(essay)
        assert len(essay.split()) == sizes(sample).units


def test_essays_repeat_where_they_end(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    words = corpora.essays().words
    sample = niah("niah_single_2").sample(
        Coordinates(0, 60_000, 0), Materials(byte_tokenizer, corpora)
    )
    essay = " ".join(
        p for i, p in enumerate(sample.problem.context.pieces) if i != sample.evidence[0].piece
    ).split()
    assert len(essay) > 2 * len(words)
    assert essay == [words[i % len(words)] for i in range(len(essay))]


def test_pairs_know_their_numbers() -> None:
    words = lexicon()
    for number in (0, 1, 12_345, words.pairs - 1):
        assert number in words.pair_numbers(words.pair(number))
    assert words.pair_numbers("no-such-pair-zzz") == []


def test_no_two_pairs_read_the_same() -> None:
    words = lexicon()
    # A pair that reads as another one has a noun with a hyphen, or the other one has.
    hyphens = [noun for noun in words.nouns if "-" in noun]
    assert hyphens
    for adjective in words.adjectives:
        assert all(len(words.pair_numbers(f"{adjective}-{noun}")) == 1 for noun in hyphens)


def test_near_misses_share_one_word_with_the_key_that_is_asked_for(
    byte_tokenizer: Tokenizer,
) -> None:
    task = replace(niah("niah_multikey_2"), near_misses=0.3)
    shared: Counter[str] = Counter()
    for sample in many(task, 8, 60_000, byte_tokenizer):
        (key,) = sample.meta["keys"]
        asked = word_numbers(str(key))
        for line in sample.problem.context.pieces:
            adjective, noun = word_numbers(re.findall(r" for (.+) is: ", line)[0])
            shared[f"{adjective == asked[0]} {noun == asked[1]}"] += 1
    lines = shared.total()
    assert shared["True True"] == 8  # the needles themselves
    assert shared["True False"] / lines == pytest.approx(0.15, abs=0.02)
    assert shared["False True"] / lines == pytest.approx(0.15, abs=0.02)


def word_numbers(key: str) -> tuple[int, int]:
    """The adjective and the noun of a key, as their places in the lists."""
    adjective, noun = divmod(lexicon().pair_numbers(key)[0], len(lexicon().nouns))
    return adjective, noun


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("niah_multikey_2", {"near_misses": 1.5}, "expected 0 to 1"),
        ("niah_multikey_3", {"near_misses": 0.1}, "keys of two words"),
        ("niah_single_1", {"near_misses": 0.1}, "haystack of needles"),
        ("niah_multikey_2", {"near_misses": 0.1, "published": True}, "published=false"),
    ],
)
def test_near_misses_are_for_haystacks_of_word_needles(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(niah(name), **settings)
