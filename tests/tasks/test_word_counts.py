"""cwe and fwe: how often each word stands, how full the text is, where words come from."""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.haystack.measure import meter
from tasks.registry import TASKS
from tasks.ruler.cwe import CommonWords
from tasks.ruler.fwe import FrequentWords, random_letters
from tasks.ruler.wordlists import WORDS_A_PIECE, WordList, numbering_tokens, shuffled
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials
from tests.tasks.parts import prompt, sizes, whole_prompt

NO_DATA = Corpora(None)


@pytest.fixture
def cwe() -> CommonWords:
    task = TASKS["cwe"]
    assert isinstance(task, CommonWords)
    return task


@pytest.fixture
def fwe() -> FrequentWords:
    task = TASKS["fwe"]
    assert isinstance(task, FrequentWords)
    return task


def make(task: Any, index: int, length: int, tokenizer: Tokenizer, **more: Any) -> Sample:
    sample: Sample = task.sample(
        Coordinates(index, length, 3), Materials(tokenizer, more.get("corpora", NO_DATA))
    )
    return sample


def entries(text: str) -> list[str]:
    """The words of a numbered list; its numbers are checked."""
    found = re.findall(r"(\d+)\. (.+?)(?= \d+\. |\Z)", text)
    assert " ".join(f"{number}. {word}" for number, word in found) == text
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [word for _, word in found]


@pytest.mark.parametrize(("length", "many", "few"), [(4_095, 6, 1), (4_096, 30, 3), (9_000, 30, 3)])
def test_common_words_stand_as_often_as_rulers(
    length: int, many: int, few: int, cwe: CommonWords, gpt2_like: Tokenizer
) -> None:
    for index in range(5):
        sample = make(cwe, index, length, gpt2_like)
        counts = Counter(entries(sample.problem.context.text()))
        assert [counts.pop(gold) for gold in sample.golds] == [many] * 10
        partial = [count for count in counts.values() if count != few]
        assert len(partial) <= 1
        assert all(count < few for count in partial)
        lists = lexicon()
        assert counts.keys() <= {*lists.nouns, *lists.adjectives, *lists.verbs}


def test_other_numbers_of_repeats_can_be_asked_for(
    cwe: CommonWords, byte_tokenizer: Tokenizer
) -> None:
    task = replace(cwe, common=3, common_repeats=9, other_repeats=2)
    sample = make(task, 0, 5_000, byte_tokenizer)
    counts = Counter(entries(sample.problem.context.text()))
    assert [count for _, count in counts.most_common(4)] == [9, 9, 9, 2]
    assert {word for word, _ in counts.most_common(3)} == set(sample.golds)
    assert "What are the 3 most common words" in sample.problem.question
    for wrong in ({"common": 0}, {"common": 20}, {"other_repeats": 30}):
        with pytest.raises(UsageError, match="expected 1 to 19 words"):
            replace(cwe, **wrong)


@pytest.mark.parametrize("form", ["memagent", "ruler"])
def test_one_more_entry_would_not_fit(
    form: Any, cwe: CommonWords, any_tokenizer: Tokenizer
) -> None:
    task = replace(cwe, form=form)
    for length in range(9_000, 9_012):
        sample = make(task, 0, length, any_tokenizer)
        text = sample.problem.context.text()
        assert len(any_tokenizer.encode(whole_prompt(sample))) == sizes(sample).prompt_tokens
        left = length - task.generation_tokens - sizes(sample).prompt_tokens
        dearest = max(map(any_tokenizer.count, {f" 9999. {word}" for word in entries(text)}))
        assert 0 <= left < dearest


def test_rulers_prompt_begins_with_a_worked_example(
    cwe: CommonWords, byte_tokenizer: Tokenizer
) -> None:
    for length, total, many, few in ((3_000, 20, 3, 1), (9_000, 40, 10, 3)):
        sample = make(replace(cwe, form="ruler"), 1, length, byte_tokenizer)
        before = prompt(sample).before
        found = re.fullmatch(
            r"(Below is [^\n]+ often\.)\n([^\n]+)\nQuestion: What are the 10 most common words in "
            r"the above list\? Answer: The top 10 words that appear most often in the list are: "
            r"([^\n]+)\n\1\n",
            before,
        )
        assert found
        counts = Counter(entries(found[2]))
        assert len(counts) == total
        assert [counts.pop(word) for word in entries(found[3])] == [many] * 10
        assert set(counts.values()) == {few}


def test_places_of_common_words_are_uniform(cwe: CommonWords, byte_tokenizer: Tokenizer) -> None:
    places: list[float] = []
    for index in range(20):
        sample = make(cwe, index, 9_000, byte_tokenizer)
        words = entries(sample.problem.context.text())
        places += [i / len(words) for i, word in enumerate(words) if word in sample.golds]
    histogram, _ = np.histogram(places, bins=10, range=(0, 1))
    assert histogram.min() > 0.85 * len(places) / 10
    assert histogram.max() < 1.15 * len(places) / 10


def test_longer_lists_take_the_english_words(
    cwe: CommonWords, byte_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lists = lexicon()
    plain = {*lists.nouns, *lists.adjectives, *lists.verbs}
    task = replace(cwe, common_repeats=2, other_repeats=1)
    assert set(entries(make(task, 0, 100_000, byte_tokenizer).problem.context.text())) <= plain
    with pytest.raises(DataMissing, match="english_words"):
        make(task, 0, 200_000, byte_tokenizer)
    (tmp_path / "words").mkdir()
    words = [f"x{i:x}y" for i in range(20_000)]
    file = tmp_path / "words" / "english_words.tiny.json"
    file.write_text(json.dumps(dict(enumerate(words))))
    corpora = Corpora(tmp_path)
    sample = make(task, 0, 200_000, byte_tokenizer, corpora=corpora)
    assert set(entries(sample.problem.context.text())) <= set(words)
    assert sizes(sample).prompt_tokens > 199_850
    with pytest.raises(UsageError, match="ask for at most that") as caught:
        make(task, 0, 900_000, byte_tokenizer, corpora=corpora)
    assert "20000 words" in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{}", '{"0": 1}', '{"0": "two words"}', '{"0": ""}'])
def test_a_damaged_word_list_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "english_words.json").write_text(content)
    with pytest.raises(UsageError, match="get it again"):
        Corpora(tmp_path).english_words()


def test_numbers_are_counted_as_they_are_tokenized(any_tokenizer: Tokenizer) -> None:
    ends = numbering_tokens(meter(any_tokenizer), 1_205)
    for count in (1, 9, 10, 99, 100, 1_000, 1_205):
        text = " ".join(f"{number}." for number in range(1, count + 1))
        assert ends[count - 1] == any_tokenizer.count(text)


def test_words_are_counted_together_as_one_by_one(any_tokenizer: Tokenizer) -> None:
    rng = random.Random(4)
    texts = [word for word in lexicon().nouns if not word.isalpha()]
    texts += [*rng.sample(lexicon().verbs, 50), "...", "12.", "don't", "\u6771\u4eac", "a", "<|x|>"]
    together = meter(any_tokenizer).spaced(texts)
    assert together.tolist() == [len(any_tokenizer.encode(" " + text)) for text in texts]


@pytest.mark.parametrize("length", [1_200, 8_192, 30_000])
def test_frequencies_follow_the_zeta_distribution(
    length: int, fwe: FrequentWords, gpt2_like: Tokenizer
) -> None:
    for index in range(3):
        sample = make(fwe, index, length, gpt2_like)
        counts = Counter(sample.problem.context.text().split(" "))
        dots = counts.pop("...")
        ranked = [count for _, count in counts.most_common()]
        assert {word for word, _ in counts.most_common(3)} == set(sample.golds)
        # The last step of n may be taken for the first ranks only.
        missing = [dots // rank**2 - count for rank, count in enumerate(ranked, 2)]
        assert set(missing) <= {0, 1}
        steps = [miss for rank, miss in enumerate(missing, 2) if dots % rank**2 == 0]
        assert steps == sorted(steps)
        assert sum(steps) == sum(missing)
        after = dots - 1 if 1 in steps or not steps else dots
        assert after < (len(ranked) + 2) ** 2 or len(ranked) + 1 == length // 50
        assert all(re.fullmatch("[a-z]{6}", word) for word in counts)
        assert sample.meta["counts"] == [dots, *ranked[:4]]


def test_another_exponent_and_vocabulary(fwe: FrequentWords, byte_tokenizer: Tokenizer) -> None:
    task = replace(fwe, alpha=1.5, vocabulary=12, letters=4)
    sample = make(task, 0, 20_000, byte_tokenizer)
    counts = Counter(sample.problem.context.text().split(" "))
    assert len(counts) == 12
    dots = counts["..."]
    ranked = [count for _, count in counts.most_common()]
    wanted = [int(dots / rank**1.5) for rank in range(1, 13)]
    assert all(abs(have - want) <= 1 for have, want in zip(ranked, wanted, strict=True))
    for wrong in ({"alpha": 1.0}, {"vocabulary": 4}, {"letters": 2}):
        with pytest.raises(UsageError, match="expected alpha above 1"):
            replace(fwe, **wrong)


def test_one_more_coded_word_would_not_fit(fwe: FrequentWords, any_tokenizer: Tokenizer) -> None:
    for length in range(3_000, 3_024):
        sample = make(fwe, 0, length, any_tokenizer)
        text = sample.problem.context.text()
        assert len(any_tokenizer.encode(whole_prompt(sample))) == sizes(sample).prompt_tokens
        dearest = max(any_tokenizer.count(f" {word}") for word in set(text.split(" ")))
        assert 0 <= length - fwe.generation_tokens - sizes(sample).prompt_tokens < dearest


def test_coded_words_stand_anywhere(fwe: FrequentWords, byte_tokenizer: Tokenizer) -> None:
    last_is_dots = 0
    places: list[float] = []
    for index in range(60):
        words = make(fwe, index, 6_000, byte_tokenizer).problem.context.text().split(" ")
        last_is_dots += words[-1] == "..."
        places += [i / len(words) for i, word in enumerate(words) if word != "..."]
    assert 0.4 < last_is_dots / 60 < 0.85, "the last word is as any other: 63% are dots"
    histogram, _ = np.histogram(places, bins=10, range=(0, 1))
    assert histogram.min() > 0.9 * len(places) / 10


def test_shuffling_keeps_what_is_there_and_moves_it_anywhere() -> None:
    items = np.repeat(np.arange(4), [1, 2, 3, 4])
    seen = Counter(tuple(shuffled(random.Random(seed), items).tolist()) for seed in range(400))
    assert all(sorted(order) == items.tolist() for order in seen)
    first = Counter(order[0] for order in seen.elements())
    assert all(abs(first[item] / 400 - (item + 1) / 10) < 0.08 for item in range(4))
    assert len(shuffled(random.Random(0), np.arange(0))) == 0
    with pytest.raises(ValueError, match="2\\*\\*20"):
        shuffled(random.Random(0), np.array([1 << 20]))


def test_a_word_list_reads_the_same_in_pieces() -> None:
    words = np.array(["a", "b c"], dtype=object)
    order = np.arange(WORDS_A_PIECE + 3) % 2
    plain, numbered = WordList(words, order), WordList(words, order, numbered=True)
    assert len(plain) == len(numbered) == 2
    assert " ".join(plain).split(" ", 4)[:4] == ["a", "b", "c", "a"]
    assert entries(" ".join(numbered)) == [str(words[i]) for i in order]
    n = WORDS_A_PIECE
    assert numbered[-1] == f"{n + 1}. a {n + 2}. b c {n + 3}. a"


@pytest.mark.parametrize("count", [0, 1, 3600])
def test_letters_drawn_at_once_are_those_of_choices(count: int) -> None:
    ours, theirs = random.Random(count), random.Random(count)
    letters = "".join(theirs.choices(string.ascii_lowercase, k=count))
    assert random_letters(ours, count) == letters
    assert ours.getstate() == theirs.getstate()
