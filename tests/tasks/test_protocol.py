"""PROTOCOL section 2 where no other test has it: the table of tasks, budgets, distributions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.haystack.family import Draft
from tasks.haystack.measure import meter
from tasks.haystack.published_cells import PublishedCell
from tasks.questions.documents import PUBLISHED_DOCUMENTS
from tasks.registry import TASKS, find_task
from tasks.ruler.essays import DEPTHS, EssaySentences, fill_with_essays
from tasks.ruler.needles import LineKinds, NeedleLines, draw_distinct, fill_with_needles
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials

RULER_TABLE = {
    "niah_single_1": ("noise", "words", "numbers", 1, 1, 1),
    "niah_single_2": ("essay", "words", "numbers", 1, 1, 1),
    "niah_single_3": ("essay", "words", "uuids", 1, 1, 1),
    "niah_multikey_1": ("essay", "words", "numbers", 4, 1, 1),
    "niah_multikey_2": ("needle", "words", "numbers", 1, 1, 1),
    "niah_multikey_3": ("needle", "uuids", "uuids", 1, 1, 1),
    "niah_multivalue": ("essay", "words", "numbers", 1, 4, 1),
    "niah_multiquery": ("essay", "words", "numbers", 4, 1, 4),
}
BUDGETS = {"niah": 128, "vt": 30, "cwe": 120, "fwe": 50, "qa": 32, "ruler": 32}


@pytest.mark.parametrize("name", RULER_TABLE)
def test_needle_tasks_are_those_of_the_table(name: str) -> None:
    task: Any = TASKS[name]
    found = (task.haystack, task.key_kind, task.value_kind, task.keys, task.values, task.queries)
    assert found == RULER_TABLE[name]


def test_reply_budgets_are_rulers() -> None:
    for name, task in TASKS.items():
        family = name.split("_")[0]
        if family in BUDGETS:
            assert task.generation_tokens == BUDGETS[family], name


def test_numbers_of_documents_double_with_the_nominal_length() -> None:
    assert list(PUBLISHED_DOCUMENTS) == [
        7_000, 14_000, 28_000, 56_000, 112_000, 224_000, 448_000, 896_000, 1_750_000, 3_500_000,
    ]  # fmt: skip
    assert list(PUBLISHED_DOCUMENTS.values()) == [50 << i for i in range(10)]


def test_a_question_is_the_same_at_every_length(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    for name in ("ruler_hqa", "ruler_hqa@documents=12", "qa_1", "qa_2"):
        for index in range(4):
            asked = {
                find_task(name)
                .sample(Coordinates(index, length, seed), Materials(byte_tokenizer, corpora))
                .problem.question
                for length, seed in ((5_000, 0), (6_000, 0), (6_000, 1))
            }
            assert len(asked) == 1


# -- distributions over thousands of draws ---------------------------------------------------


def evenly(counts: Counter[Any], kinds: int, share: float = 0.3) -> None:
    """Every one of `kinds` came up, each about as often as the others."""
    mean = counts.total() / kinds
    assert len(counts) == kinds
    assert all(abs(count - mean) < share * mean for count in counts.values())


def test_needles_in_essays_stand_at_the_forty_depths(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    assert np.linspace(0, 100, 40, endpoint=True).round().astype(int).tolist() == list(DEPTHS)
    depths: Counter[int] = Counter()
    first: Counter[int] = Counter()
    for seed in range(2_000):
        needles = [f"Needle {i}." for i in range(4)]
        at, rng = Coordinates(0, 6_000, seed), random.Random(seed)
        draft = Draft(at, corpora, meter(byte_tokenizer), rng, PublishedCell())
        hay = fill_with_essays(draft, needles, 6_000, None)
        pieces, places, shares = hay.pieces, hay.places, hay.depths
        sentences = len(EssaySentences(corpora.essays(), hay.words))
        wanted = {int(sentences * depth / 100): depth for depth in DEPTHS}
        found = [wanted[round(share * sentences)] for share in shares]
        assert len(set(found)) == len(set(places)) == 4
        assert [pieces[place] for place in places] == needles
        depths.update(found)
        first[int(np.argmin(places))] += 1
    evenly(depths, 40)
    evenly(first, 4)


def test_lines_of_a_chain_stand_at_sorted_random_places(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = TASKS["vt"]
    places = np.array(
        [
            [one.piece / len(sample.problem.context.pieces) for one in sample.evidence]
            for sample in (
                task.sample(Coordinates(i, 6_000, 0), Materials(byte_tokenizer, corpora))
                for i in range(2_000)
            )
        ]
    )
    assert (np.diff(places, axis=1) > 0).all()
    # The mean of the k-th of five sorted uniform places is k / 6.
    assert np.abs(places.mean(axis=0) - np.arange(1, 6) / 6).max() < 0.03


def test_gold_documents_stand_anywhere(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    task = find_task("ruler_hqa@documents=20")
    places: Counter[int] = Counter()
    for index in range(40):
        for seed in range(50):
            sample = task.sample(
                Coordinates(index, 7_000, seed), Materials(byte_tokenizer, corpora)
            )
            golds: Any = sample.meta["gold_documents"]
            assert len(set(golds)) == 2
            places.update(golds)
    evenly(places, 20)


def test_any_document_of_the_rest_is_drawn_as_often(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = find_task("ruler_hqa@documents=30")
    own = set(corpora.hotpotqa().questions[0].own)
    drawn: Counter[int] = Counter()
    for seed in range(2_000):
        sample = task.sample(Coordinates(0, 7_000, seed), Materials(byte_tokenizer, corpora))
        order: Any = sample.problem.context.pieces.order  # type: ignore[attr-defined]
        assert own <= set(order)
        assert len(set(order)) == 30
        drawn.update(set(order) - own)
    evenly(drawn, len(corpora.hotpotqa().documents) - len(own))


def test_keys_and_values_have_their_forms_and_differ(byte_tokenizer: Tokenizer) -> None:
    words = lexicon()
    pairs = draw_distinct("words", random.Random(0), 4_000)
    assert len(set(pairs)) == 4_000
    assert all(words.pair_numbers(pair) for pair in pairs)
    numbers = [int(text) for text in draw_distinct("numbers", random.Random(0), 4_000)]
    assert all(10**6 <= number < 10**7 for number in numbers)
    evenly(Counter(str(number)[-1] for number in numbers), 10)
    uuids = draw_distinct("uuids", random.Random(0), 4_000)
    assert all(text[14] == "4" and text[19] in "89ab" for text in uuids)
    evenly(Counter(text[0] for text in uuids), 16)


def test_no_needle_of_a_haystack_has_the_key_that_is_asked_for(byte_tokenizer: Tokenizer) -> None:
    keys = draw_distinct("words", random.Random(1), 3)
    kinds = LineKinds("words", "numbers", set(keys))
    lines, _ = fill_with_needles(random.Random(2), kinds, 400_000, meter(byte_tokenizer), least=1)
    assert isinstance(lines, NeedleLines)
    assert len(lines) > 4_000
    assert not any(f" for {key} is" in line for line in lines for key in keys)
