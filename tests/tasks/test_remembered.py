"""Counts that are kept between runs: each made once, shared, and never trusted when damaged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.haystack import remembered
from tasks.haystack.remembered import CHECKSUM_BYTES, RememberedCounts, cache_folder
from tasks.questions.drawn_documents import _remembered
from tasks.registry import TASKS
from tasks.task import Coordinates, Materials


class Counter:
    """Counts text n as n tokens more than 100, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.asked += numbers
        return [100 + number for number in numbers]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, to which every count is saved at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(remembered, "SAVE_AFTER_S", -1.0)
    return tmp_path / "longmem-bench" / "token-counts"


def counts(tokenizer: Tokenizer, fingerprint: str = "corpus", size: int = 9) -> RememberedCounts:
    return RememberedCounts("texts", fingerprint, size, tokenizer)


def ask(known: RememberedCounts, *numbers: int) -> list[int]:
    """Asks for the counts, checks them, and returns the numbers that had to be counted."""
    counter = Counter()
    found = known.of(np.array(numbers, dtype=np.int64), counter)
    assert found.tolist() == [100 + number for number in numbers]
    return counter.asked


def test_a_text_is_counted_once_and_never_again(folder: Path, byte_tokenizer: Tokenizer) -> None:
    first = counts(byte_tokenizer)
    assert ask(first, 4, 2, 4) == [2, 4]
    assert ask(first, 2, 5) == [5]
    assert ask(first) == []
    assert ask(counts(byte_tokenizer), 2, 4, 5, 6) == [6]
    assert [path.suffix for path in folder.iterdir()] == [".counts"]


def test_little_counting_is_not_saved(
    folder: Path, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "SAVE_AFTER_S", 60.0)
    ask(counts(byte_tokenizer), 1)
    assert not folder.exists()


def test_all_counts_are_saved_however_little_they_took(
    folder: Path, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "SAVE_AFTER_S", 60.0)
    counter = Counter()
    first = counts(byte_tokenizer)
    ask(first, 3)
    assert first.all(counter).tolist() == list(range(100, 109))
    assert counter.asked == [0, 1, 2, 4, 5, 6, 7, 8]
    assert counts(byte_tokenizer).all(counter).tolist() == list(range(100, 109))
    assert len(counter.asked) == 8


def test_what_is_counted_ahead_is_kept_however_little(
    folder: Path, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "SAVE_AFTER_S", 60.0)
    monkeypatch.setattr(remembered, "BLOCK", 4)
    first = counts(byte_tokenizer)
    ask(first, 3)
    counter = Counter()
    assert first.complete(counter) == 8
    assert counter.asked == [0, 1, 2, 4, 5, 6, 7, 8]
    assert first.complete(counter) == 0
    assert ask(counts(byte_tokenizer), *range(9)) == []


def test_another_corpus_or_tokenizer_has_counts_of_its_own(
    folder: Path, byte_tokenizer: Tokenizer, gpt2_like: Tokenizer
) -> None:
    ask(counts(byte_tokenizer), 1)
    assert ask(counts(gpt2_like), 1) == [1]
    assert ask(counts(byte_tokenizer, fingerprint="other"), 1) == [1]
    assert ask(counts(byte_tokenizer, size=8), 1) == [1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content[:CHECKSUM_BYTES],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"\0" + content[1:],
    ],
)
def test_a_damaged_file_is_counted_anew_and_mended(
    damage: object, folder: Path, byte_tokenizer: Tokenizer
) -> None:
    ask(counts(byte_tokenizer), 3, 7)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))  # type: ignore[operator]
    assert ask(counts(byte_tokenizer), 3, 7) == [3, 7]
    assert file.read_bytes() == whole


def test_processes_add_to_each_others_counts(folder: Path, byte_tokenizer: Tokenizer) -> None:
    one, other = counts(byte_tokenizer), counts(byte_tokenizer)
    ask(one, 1)
    ask(other, 2)
    assert ask(counts(byte_tokenizer), 1, 2) == []
    assert ask(other, 1) == [], "what was there at its last save is known"


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_tokenizer: Tokenizer
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(remembered, "SAVE_AFTER_S", -1.0)
    assert ask(counts(byte_tokenizer), 3) == [3]
    with pytest.raises(UsageError, match="set XDG_CACHE_HOME"):
        counts(byte_tokenizer).complete(Counter())


def test_where_counts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "longmem-bench" / "token-counts"

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert cache_folder() is None


def test_samples_do_not_depend_on_what_is_remembered(
    folder: Path, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    def texts(name: str, length: int) -> list[str]:
        _remembered.cache_clear()
        fresh = Corpora(corpora.data_dir)
        made = (
            TASKS[name].sample(Coordinates(i, length, 1), Materials(byte_tokenizer, fresh))
            for i in range(3)
        )
        return [sample.problem.context.text() for sample in made]

    for name in ("ruler_hqa", "qa_1"):
        first = texts(name, 7_000)
        assert any(folder.iterdir())
        assert texts(name, 7_000) == first
