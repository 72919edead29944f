"""The published evaluation files, in both forms, on small ones made here in those forms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.output.export import export_samples
from tasks.questions.documents import DocumentQuestions
from tasks.questions.published_files import PublishedQuestions, split_documents
from tasks.scoring import score
from tasks.task import Coordinates, Materials
from tests.tasks.conftest import hotpot_item

TASK = PublishedQuestions("ruler_hqa_files", "published")
OURS = DocumentQuestions("ruler_hqa", "ours", "hotpotqa", bare_question=True, documents=50)


def write_hotpotqa(folder: Path, count: int = 40) -> None:
    text = json.dumps([hotpot_item(i) for i in range(count)])
    (folder / "hotpot_dev_distractor_v1.json").write_text(text)


def make(index: int, length: int, tokenizer: Tokenizer, corpora: Corpora, seed: int = 1) -> Sample:
    return TASK.sample(Coordinates(index, length, seed), Materials(tokenizer, corpora))


@pytest.fixture
def ours(tmp_path: Path, byte_tokenizer: Tokenizer) -> list[Sample]:
    """Three of our samples of 50 documents, written as a published file of the text form."""
    write_hotpotqa(tmp_path)
    corpora = Corpora(tmp_path)
    made = [
        OURS.sample(Coordinates(i, 7_000, 4), Materials(byte_tokenizer, corpora)) for i in range(3)
    ]
    (tmp_path / "published").mkdir()
    out = tmp_path / "published" / "eval_50.json"
    export_samples(made, "memagent", out, byte_tokenizer, 32)
    return made


def test_the_text_form_gives_its_bytes_and_our_evidence(
    ours: list[Sample], tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    corpora = Corpora(tmp_path)
    for index, sample in enumerate(ours):
        found = make(index, 7_000, byte_tokenizer, corpora)
        assert found.problem.context.text() == sample.problem.context.text()
        assert found.problem.question == sample.problem.question
        assert found.golds == sample.golds
        assert found.evidence == sample.evidence
        assert len(found.problem.context.pieces) == len(sample.problem.context.pieces)
        for name in ("gold_documents", "depths", "kind"):
            assert found.meta[name] == sample.meta[name]


def test_the_text_form_needs_no_other_file_and_no_seed(
    ours: list[Sample], tmp_path: Path, byte_tokenizer: Tokenizer, tokenizer: Tokenizer
) -> None:
    whole = make(1, 7_000, byte_tokenizer, Corpora(tmp_path))
    (tmp_path / "hotpot_dev_distractor_v1.json").unlink()
    alone = make(1, 7_000, tokenizer, Corpora(tmp_path), seed=9)
    assert alone.evidence == ()
    assert (alone.id, alone.golds) == (whole.id, whole.golds)
    assert alone.problem.context.text() == whole.problem.context.text()


def write_index_form(folder: Path, orders: list[list[int]], **changes: Any) -> None:
    rows = [
        {
            "context": order,
            "input": hotpot_item(i)["question"],
            "answers": [hotpot_item(i)["answer"]],
            "num_docs": len(order),
            "index": i,
            **changes,
        }
        for i, order in enumerate(orders)
    ]
    with gzip.open(folder / "eval_12800.json.gz", "wt", encoding="utf-8") as file:
        json.dump(rows, file)


def test_the_index_form_takes_its_documents_from_hotpotqa(
    tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    write_hotpotqa(tmp_path)
    corpora = Corpora(tmp_path)
    pool = corpora.hotpotqa()
    golds = pool.questions[1].golds
    write_index_form(tmp_path, [[3, 1, 2], [5, golds[1], 0, golds[0], 7]])
    sample = make(1, 1_750_000, byte_tokenizer, corpora)
    pieces = list(sample.problem.context.pieces)
    assert pieces[0] == f"Document 1:\n{pool.documents[5]}"
    assert sample.meta["gold_documents"] == [4, 2]
    for one in sample.evidence:
        assert pieces[one.piece][one.start : one.end] == one.text
    assert [one.text for one in sample.evidence] == [
        "Poet 1 was born in Belmont.", " It is by Poet 1.",
    ]  # fmt: skip


@pytest.mark.parametrize("changes", [{"index": 7}, {"context": [10_000]}])
def test_an_index_file_of_another_corpus_is_refused(
    changes: dict[str, Any], tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    write_hotpotqa(tmp_path)
    write_index_form(tmp_path, [[1, 2]], **changes)
    with pytest.raises(UsageError, match="7,405 questions"):
        make(0, 1_750_000, byte_tokenizer, Corpora(tmp_path))


def test_an_index_file_needs_hotpotqa(tmp_path: Path, byte_tokenizer: Tokenizer) -> None:
    write_index_form(tmp_path, [[1, 2]])
    with pytest.raises(DataMissing, match="hotpot_dev_distractor_v1"):
        make(0, 1_750_000, byte_tokenizer, Corpora(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '[{"context": "no heading", "input": "q", "answers": ["a"]}]',
        '[{"context": [], "input": "q", "answers": ["a"]}]',
        '[{"context": [true], "input": "q", "answers": ["a"]}]',
        '[{"context": "Document 1:\\nx", "input": "q", "answers": []}]',
        '[{"context": "Document 1:\\nx", "input": 1, "answers": ["a"]}]',
        '[{"context": "Document 1:\\nx", "answers": ["a"]}]',
        '[{"context": "Document 1:\\nx", "input": "q", "answers": ["a"]}, '
        '{"context": [1], "input": "q", "answers": ["a"]}]',
    ],
)
def test_another_file_is_refused_by_name(
    content: str, tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    (tmp_path / "eval_50.json").write_text(content)
    with pytest.raises(UsageError, match=r"eval_50.json: not readable"):
        make(0, 7_000, byte_tokenizer, Corpora(tmp_path))


def test_json_lines_are_read_too(tmp_path: Path, byte_tokenizer: Tokenizer) -> None:
    row = '{"context": "Document 1:\\nx\\n\\nDocument 2:\\ny", "input": "q", "answers": "a"}\n'
    (tmp_path / "eval_50.json").write_text(row * 2)
    sample = make(1, 7_000, byte_tokenizer, Corpora(tmp_path))
    assert sample.problem.context.text() == "Document 1:\nx\n\nDocument 2:\ny"
    assert (sample.golds, sample.source_index) == (("a",), None)


def test_lengths_and_questions_that_are_not_there(
    ours: list[Sample], tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    with pytest.raises(UsageError, match="7000, 14000"):
        make(0, 8_000, byte_tokenizer, Corpora(tmp_path))
    with pytest.raises(UsageError, match="has 3 questions"):
        make(3, 7_000, byte_tokenizer, Corpora(tmp_path))
    with pytest.raises(DataMissing, match=r"eval_100.json"):
        make(0, 14_000, byte_tokenizer, Corpora(tmp_path))


@pytest.mark.parametrize(
    "documents",
    [
        ["one"],
        ["a\n\nDocument 2:\nb", "\n\nDocument 9:\n", "", "\n"],
        ["x\n\n", "\n\ny", "Document 1:\n"],
    ],
)
def test_split_documents_render_the_same_again(documents: list[str]) -> None:
    text = "\n\n".join(f"Document {i}:\n{document}" for i, document in enumerate(documents, 1))
    split = split_documents(text)
    assert split is not None
    again = "\n\n".join(f"Document {i}:\n{document}" for i, document in enumerate(split, 1))
    assert again == text


def test_a_published_file_is_exported_as_it_came(
    ours: list[Sample], tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    source = tmp_path / "published" / "eval_50.json"
    rows = json.loads(source.read_text(encoding="utf-8"))
    source.write_text(json.dumps(rows[::-1]), encoding="utf-8")
    corpora = Corpora(tmp_path)
    out = tmp_path / "again.json"
    made = [make(index, 7_000, byte_tokenizer, corpora) for index in range(3)]
    export_samples(made, "memagent", out, byte_tokenizer, 32)
    assert json.loads(out.read_text(encoding="utf-8")) == rows[::-1]


def test_gold_scores_one(ours: list[Sample], tmp_path: Path, byte_tokenizer: Tokenizer) -> None:
    sample = make(0, 7_000, byte_tokenizer, Corpora(tmp_path))
    for said, value in ((sample.golds[0], 1.0), ("zzz", 0.0)):
        verdicts = score(f"the answer is {said}.", said, sample.golds, sample.match)
        assert verdicts["published"]["sub_em"] == verdicts["strict"]["sub_em"] == value
