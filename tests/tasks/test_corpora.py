"""Reading local corpora: what is found, what is refused, and with which words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from core.errors import DataMissing, UsageError
from tasks.corpora.read import Corpora
from tests.conftest import SHARED
from tests.tasks.conftest import hotpot_item, squad_article

HOTPOT = "hotpot_dev_distractor_v1.json"


def test_hotpotqa_facts_are_sentences_of_the_pool(corpora: Corpora) -> None:
    pool = corpora.hotpotqa()
    assert list(pool.documents) == sorted(set(pool.documents))
    question = pool.questions[7]
    assert [pool.documents[d][s:e] for d, s, e in question.facts] == [
        "Poet 7 was born in Messina.",
        " It is by Poet 7.",
    ]
    assert [pool.documents[d].split("\n")[0] for d in question.golds] == ["Poet 7", "Book 7"]
    assert len(question.own) == 10


def test_squad_keeps_answerable_questions_and_finds_misplaced_answers(corpora: Corpora) -> None:
    pool = corpora.squad()
    assert len(pool.questions) == 6 * 16 * 2
    for question in pool.questions:
        ((document, start, end),) = question.facts
        assert pool.documents[document][start:end] == question.answers[0]
        assert question.own[0] in question.near


def test_packed_and_plain_files_have_one_fingerprint(tmp_path: Path) -> None:
    text = json.dumps([hotpot_item(0)]).encode()
    plain, packed = tmp_path / "a", tmp_path / "b" / "hotpotqa"
    plain.mkdir()
    packed.mkdir(parents=True)
    (plain / HOTPOT).write_bytes(text)
    (packed / (HOTPOT + ".gz")).write_bytes(gzip.compress(text))
    one, two = Corpora(plain), Corpora(packed.parent)
    assert one.fingerprints() == {}
    assert one.hotpotqa().documents == two.hotpotqa().documents
    assert one.fingerprints() == two.fingerprints() != {}


def test_a_missing_file_is_named_with_the_places_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="hotpot_dev_distractor_v1") as caught:
        Corpora(tmp_path).hotpotqa()
    assert str(tmp_path / "hotpotqa") in str(caught.value)
    assert "--data DIR" in str(caught.value)
    with pytest.raises(DataMissing, match="no such folder"):
        Corpora(tmp_path / "nowhere").squad()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"{}",
        b"[]",
        b'[{"question": "x"}]',
        b"[1, 2]",
        json.dumps([hotpot_item(i) for i in range(3)]).encode()[:-40],
        b"\xff\xfe[",
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / HOTPOT).write_bytes(content)
    with pytest.raises(UsageError, match="get it again") as caught:
        Corpora(tmp_path).hotpotqa()
    assert HOTPOT in str(caught.value)


def test_a_packed_file_cut_short_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps({"data": [squad_article(0)]}).encode())
    (tmp_path / "dev-v2.0.json.gz").write_bytes(data[:-30])
    with pytest.raises(UsageError, match="cut short"):
        Corpora(tmp_path).squad()
    (tmp_path / "PaulGrahamEssays.json").write_text('{"text": " "}')
    with pytest.raises(UsageError, match="no text"):
        Corpora(tmp_path).essays()


def test_many_small_blocks_read_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / HOTPOT).write_text(json.dumps([hotpot_item(i) for i in range(4)], indent=1))
    whole = Corpora(tmp_path).hotpotqa()
    monkeypatch.setattr("tasks.corpora.read.READ_BYTES", 7)
    assert Corpora(tmp_path).hotpotqa().documents == whole.documents


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="no corpora beside the project")
def test_the_real_files_hold_what_they_should() -> None:
    real = Corpora(SHARED / "data")
    assert len(real.squad().questions) == 5_928
    assert len(real.squad().documents) == 1_204
    assert len(real.hotpotqa().documents) == 25_166
    assert len(real.essays().words) > 525_449
