"""HotpotQA's training questions: which of them, in which order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.corpora.status import status
from tasks.questions.training_questions import write_kept
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.tasks.conftest import hotpot_item
from tests.tasks.shelf import Shelf, get, hub_row
from tests.tasks.shelf import few_questions as few_questions
from tests.tasks.shelf import shelf as shelf

PLAIN = "ruler_hqa_train@documents=12"
CLEANED = PLAIN + ",questions=kept.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    text = json.dumps([hotpot_item(n) for n in range(5)])
    (tmp_path / "hotpot_train_v1.1.json").write_text(text)
    return tmp_path


def sample(name: str, index: int, tokenizer: Tokenizer, data: Path | Corpora) -> Sample:
    corpora = data if isinstance(data, Corpora) else Corpora(data)
    return find_task(name).sample(Coordinates(index, 9999, 1), Materials(tokenizer, corpora))


def test_every_pass_reads_the_same_samples(tokenizer: Tokenizer, data: Path) -> None:
    corpora = Corpora(data)
    first, again = (sample(PLAIN, index, tokenizer, corpora) for index in (3, 8))
    assert first.problem.question == corpora.hotpotqa_train().questions[3].question
    assert (again.id, again.problem.context.text()) == (first.id, first.problem.context.text())


def test_only_kept_questions_are_asked(tokenizer: Tokenizer, data: Path) -> None:
    corpora = Corpora(data)
    write_kept(data / "kept.json", corpora.hotpotqa_train().fingerprint, [1, 4])
    samples = [sample(CLEANED, index, tokenizer, corpora) for index in range(3)]
    assert [one.index for one in samples] == [1, 4, 1]
    assert "kept questions kept.json" in corpora.fingerprints()


def test_missing_and_foreign_files_are_told(tokenizer: Tokenizer, data: Path) -> None:
    with pytest.raises(DataMissing, match="train clean"):
        sample(CLEANED, 0, tokenizer, data)
    write_kept(data / "kept.json", "another", [1])
    with pytest.raises(UsageError, match="another training file"):
        sample(CLEANED, 0, tokenizer, data)
    write_kept(data / "kept.json", "another", [])
    with pytest.raises(UsageError, match="keeps no question"):
        sample(CLEANED, 0, tokenizer, data)
    (data / "hotpot_train_v1.1.json").unlink()
    with pytest.raises(DataMissing, match="data fetch hotpotqa_train"):
        sample(PLAIN, 0, tokenizer, data)


@pytest.mark.usefixtures("few_questions")
def test_what_is_fetched_is_what_is_read(tokenizer: Tokenizer, shelf: Shelf, data: Path) -> None:
    fetched = data / "fetched"
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(hotpot_item(n)) for n in range(4)]
    get(["hotpotqa_train"], fetched, shelf)
    (said,) = get(["hotpotqa_train"], fetched, shelf)
    assert said == "hotpotqa/hotpot_train_v1.1.json: complete"
    one, other = sample(PLAIN, 3, tokenizer, fetched), sample(PLAIN, 3, tokenizer, data)
    assert one.problem.question == other.problem.question
    text = "\n".join(status(fetched))
    assert "hotpotqa_train  hotpotqa/hotpot_train_v1.1.json" in text
    assert "read by ruler_hqa_train" in text
    assert "hotpotqa        missing: hotpot_dev" in text
