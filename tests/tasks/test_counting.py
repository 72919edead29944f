"""`run.py data count`: nothing is left for a sweep to count."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import run
from commands.data import COUNTED_NAMES
from core.tokens import Tokenizer
from tasks.corpora.counting import COUNTED
from tasks.corpora.read import Corpora
from tasks.questions.drawn_documents import DocumentCosts, _remembered
from tasks.registry import find_task
from tasks.ruler.cwe import WordCosts, _word_tokens, plain_words
from tasks.task import Coordinates, Materials
from tests.conftest import ROOT

POCKET = str(ROOT / "checkpoints" / "pocket-base")
SAMPLES = (
    ("ruler_hqa", 1_500), ("qa_2", 2_000), ("qa_1", 2_000), ("cwe", 8_000),
    ("cwe@other_repeats=1", 130_000),
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("pocket")


@pytest.fixture
def data(tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny corpora and a list of words, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert corpora.data_dir
    folder = shutil.copytree(corpora.data_dir, tmp_path / "data")
    words = {number: f"w{number}" for number in range(30_000)}
    (folder / "english_words.tiny.json").write_text(json.dumps(words))
    return folder


def make_samples(data: Path) -> None:
    """As a new process does."""
    _remembered.cache_clear()
    _word_tokens.cache_clear()
    tokenizer, corpora = Tokenizer.load(POCKET), Corpora(data)
    for name, length in SAMPLES:
        find_task(name).sample(Coordinates(1, length, 1), Materials(tokenizer, corpora))


def test_samples_find_all_counts_there(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = ["data", "count", "--data", str(data)]
    assert run.main(count) == 0
    said = capsys.readouterr().out
    for part in (
        "hotpotqa: 400 of 400 texts counted now",
        "hotpotqa_train: not there",
        "squad: 96 of 96 texts counted now",
        f"words: {30_000 + len(plain_words().words):,} of ",
        f"counts  {data.parent / 'cache' / 'longmem-bench'}",
    ):
        assert part in said
    assert run.main([*count, "squad"]) == 0
    assert "squad: 0 of 96 texts counted now" in capsys.readouterr().out

    def no_more(self: Any, numbers: list[int]) -> list[int]:
        raise AssertionError(f"{len(numbers)} texts were not counted")

    for costs in (DocumentCosts, WordCosts):
        monkeypatch.setattr(costs, "_count", no_more)
    make_samples(data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(data.parent / "another"))
    with pytest.raises(AssertionError, match="not counted"):
        make_samples(data)


def test_what_cannot_be_counted_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert COUNTED == COUNTED_NAMES
    for words, told in (
        (["essays"], "counted are hotpotqa, "),
        (["hotpotqa_train"], "data fetch hotpotqa_train"),
        (["--tokenizer", str(data)], "tokenizer.json"),
    ):
        assert run.main(["data", "count", "--data", str(data), *words]) == 2
        assert told in capsys.readouterr().err
