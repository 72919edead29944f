"""What a memory should hold, on real samples, and what is said of one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from training.rl.episodes.notes import (
    Due,
    Notebook,
    check_notes,
    entries_of,
    notebook_of,
    written,
)

CHUNK = 512


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return Tokenizer.load(tokenizer_folder)


def sample_of(task: str, tokenizer: Tokenizer, index: int = 0) -> Sample:
    return find_task(task).sample(Coordinates(index, 4096, 5), Materials(tokenizer, Corpora(None)))


def read(book: Notebook, chunks: int) -> list[str]:
    """The memory of a reader who writes just what is due."""
    memory: list[str] = []
    for chunk in range(chunks):
        memory += sorted(book.due(memory, chunk).new)
    return memory


@pytest.mark.parametrize(
    "task", ["niah_single_1", "niah_multikey_2", "niah_multivalue_noise", "vt", "fiction_2hop"]
)
def test_a_reader_who_writes_what_is_due_can_answer(task: str, tokenizer: Tokenizer) -> None:
    complete = 0
    for index in range(8):
        sample = sample_of(task, tokenizer, index)
        book = notebook_of(sample, tokenizer, CHUNK)
        assert book is not None
        memory = read(book, 16)
        parted = [fact for fact in book.facts if fact.whole is None]
        if book.riddle is None:
            assert len(memory) == len(book.facts) - len(parted)
            said = " ".join(memory)
            assert sum(gold not in said for gold in sample.golds) == len(parted)
        if book.complete(memory):
            complete += 1
            question = sample.problem.question
            assert all(gold in question or gold in " ".join(memory) for gold in sample.golds)
    assert complete > 1


def test_a_fact_that_another_leads_to_is_due_only_after_it(tokenizer: Tokenizer) -> None:
    for index in range(30):
        book = notebook_of(sample_of("fiction_2hop", tokenizer, index), tokenizer, CHUNK)
        assert book is not None
        assert book.riddle is not None
        first, *rest = book.facts
        later = [f for f in rest if f.whole is not None and f.whole != first.whole]
        if book.riddle.named & {c.told.entity for c in book.riddle.clues[1:]} or not later:
            continue
        chunk = later[0].whole
        assert chunk is not None
        early = book.due([], chunk)
        assert later[0].entry not in early.all
        assert later[0].entry in early.allowed
        assert later[0].entry in book.due([first.entry], chunk).new
        return
    pytest.fail("no chain among 30 questions")


def test_what_is_looked_for_is_kept_until_a_chunk_tells_it(tokenizer: Tokenizer) -> None:
    told = 0
    for index in range(30):
        book = notebook_of(sample_of("fiction_2hop", tokenizer, index), tokenizer, CHUNK)
        assert book is not None
        assert book.riddle is not None
        first, clue = book.facts[0], book.riddle.clues[0]
        pending = f"{clue.lead} unknown".strip()
        if first.whole is None or clue.start not in book.riddle.named:
            continue
        elsewhere = first.whole + 20
        assert pending in book.due([pending], elsewhere).kept
        assert pending in book.due([], elsewhere).allowed
        due = book.due([pending], first.whole)
        assert first.entry in due.new
        assert pending not in due.all | due.allowed
        told += 1
    assert told > 10


def test_entries_are_read_from_the_pockets_memories() -> None:
    assert entries_of("No previous memory") == []
    assert entries_of("Found: wooden-table is: 1234567. old-cat is: 7654321.") == [
        "wooden-table is: 1234567",
        "old-cat is: 7654321",
    ]
    assert entries_of("Found: ABCDE. FGHIJ.") == ["ABCDE", "FGHIJ"]
    assert entries_of("I saw nothing") == ["I saw nothing"]


DUE = Due(
    kept=frozenset({"a is: 1111111", "b is: 2222222"}),
    new=frozenset({"c is: 3333333"}),
    allowed=frozenset({"stray is: 9"}),
)


@pytest.mark.parametrize(
    ("memory", "reward"),
    [
        (["a is: 1111111", "b is: 2222222", "c is: 3333333"], 1.0),
        (["a is: 1111111", "b is: 2222222", "c is: 3333333", "stray is: 9"], 1.0),
        (["a is: 1111111", "b is: 2222222"], 2 / 3),
        (["a is: 1111111", "b is: 2222221", "c is: 3333333"], (2 - 0.5) / 3),
        (["a is: 1111111", "a is: 1111111", "b is: 2222222", "c is: 3333333"], (3 - 0.5) / 3),
        (["a is: 1111111", "b is: 2222222", *["c is: 3333333"] * 12], (3 - 0.5) / 3),
        ([], 0.0),
        (["x"] * 1 + ["nonsense words"], (0 - 1.0) / 3),
    ],
)
def test_a_memory_earns_its_right_entries_less_the_wrong_ones(
    memory: list[str], reward: float
) -> None:
    assert written(DUE, memory).reward(cost=0.5) == pytest.approx(reward)


def test_errors_are_told_apart() -> None:
    made = written(DUE, ["a is: 1111111", "a is: 1111111", "b is: 2222221", "nonsense words"])
    assert (made.kept, made.to_keep, made.stored, made.to_store) == (1, 2, 0, 1)
    assert (made.blurred, made.invented, made.repeated) == (1, 1, 1)
    assert not made.right


def test_nothing_due_is_right_when_nothing_is_written() -> None:
    nothing = Due(frozenset(), frozenset(), frozenset())
    assert written(nothing, []).reward(0.5) == 1.0
    assert written(nothing, ["x"]).reward(0.5) == 0.5


def test_a_task_whose_right_entries_are_unknown_has_no_notebook(tokenizer: Tokenizer) -> None:
    assert notebook_of(sample_of("fwe", tokenizer), tokenizer, CHUNK) is None
    with pytest.raises(UsageError, match="fwe are not known"):
        check_notes("fwe")
    check_notes("vt@hops=2")
