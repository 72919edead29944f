"""Variable tracking and questions on documents, over many samples."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora, Pool, Question
from tasks.questions.documents import PUBLISHED_DOCUMENTS, DocumentQuestions
from tasks.registry import TASKS
from tasks.ruler.vt import VariableTracking
from tasks.task import Coordinates, Materials
from tests.tasks.parts import sizes, whole_prompt

VT = TASKS["vt"]
HQA = TASKS["ruler_hqa"]
assert isinstance(VT, VariableTracking)
assert isinstance(HQA, DocumentQuestions)


def make(
    task: VariableTracking | DocumentQuestions,
    index: int,
    length: int,
    tokenizer: Tokenizer,
    corpora: Corpora,
) -> Sample:
    return task.sample(Coordinates(index, length, 0), Materials(tokenizer, corpora))


def traced(text: str, value: str) -> set[str]:
    """All variables that have the value, found by following the assignments in order."""
    having: set[str] = set()
    for name, source, number in re.findall(r"VAR ([A-Z]+) = (?:VAR ([A-Z]+)|(\d+))", text):
        if number == value or source in having:
            having.add(name)
    return having


@pytest.mark.parametrize("form", ["memagent", "ruler"])
@pytest.mark.parametrize(("chains", "hops"), [(1, 4), (3, 2), (2, 7)])
def test_following_the_assignments_in_order_gives_the_golds(
    form: str, chains: int, hops: int, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = replace(VT, chains=chains, hops=hops, form=form)
    for index in range(40):
        sample = make(task, index, 6_000, byte_tokenizer, corpora)
        text = sample.problem.context.text()
        assert traced(text, str(sample.meta["value"])) == set(sample.golds)
        assert len(sample.golds) == hops + 1
        assert len(re.findall(r"VAR [A-Z]{5} =", text)) == chains * (hops + 1)


def test_values_and_names_have_their_form(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    samples = [make(VT, i, 2_000, byte_tokenizer, corpora) for i in range(300)]
    assert all(10_000 <= int(str(s.meta["value"])) <= 99_998 for s in samples)
    letters = Counter("".join(name for s in samples for name in s.golds))
    assert len(letters) == 26
    assert max(letters.values()) < 1.4 * min(letters.values())


def test_gold_documents_stand_anywhere_or_within_the_first_share(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    early = replace(HQA, gold_within=0.1)
    depths: list[float] = []
    for index in range(40):
        sample = make(early, index, 9_000, byte_tokenizer, corpora)
        documents = sizes(sample).units
        golds = sample.meta["gold_documents"]
        assert isinstance(golds, list)
        assert all(int(str(g)) <= max(int(documents * 0.1), 2) for g in golds)
        for seed in range(8):
            free = HQA.sample(Coordinates(index, 9_000, seed), Materials(byte_tokenizer, corpora))
            depths += free.meta["depths"]  # type: ignore[arg-type]
    assert abs(sum(depths) / len(depths) - 0.5) < 0.05
    assert max(depths) > 0.9


class HostileCorpora(Corpora):
    """One question on documents that begin and end with anything."""

    def hotpotqa(self) -> Pool:
        edges = ["", " ", "\n", "\r\n", "\n \n", "\t", "\u0301", "/", "7", "<|im_end|>", "🙂", "'s"]
        texts = sorted({f"{a}{w}{b}" for a in edges for b in edges for w in ("", "word.", "x")})
        question = Question("What?", ("word",), (3, 5), (3,), ((3, 0, 0),))
        return Pool(tuple(texts), (question,), "hostile")


def test_hostile_documents_are_measured_exactly(any_tokenizer: Tokenizer) -> None:
    corpora = HostileCorpora(None)
    for seed in range(25):
        length = 400 + 61 * seed
        sample = HQA.sample(Coordinates(0, length, seed), Materials(any_tokenizer, corpora))
        assert len(any_tokenizer.encode(whole_prompt(sample))) == sizes(sample).prompt_tokens


def test_documents_are_numbered_and_different(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    sample = make(HQA, 3, 9_000, byte_tokenizer, corpora)
    texts = re.split(r"\n\n(?=Document \d+:\n)", sample.problem.context.text())
    assert [t.split(":\n")[0] for t in texts] == [f"Document {k + 1}" for k in range(len(texts))]
    bodies = {t.split(":\n", 1)[1] for t in texts}
    pool = corpora.hotpotqa()
    assert len(bodies) == len(texts) == sizes(sample).units
    assert bodies >= {pool.documents[d] for d in pool.questions[3].own}


def test_too_little_room_keeps_the_golds(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    sample = make(HQA, 3, 900, byte_tokenizer, corpora)
    pool = corpora.hotpotqa()
    text = sample.problem.context.text()
    assert sizes(sample).units < 10
    assert all(pool.documents[d] in text for d in pool.questions[3].golds)


def test_published_numbers_of_documents(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    task = TASKS["ruler_hqa_published"]
    assert isinstance(task, DocumentQuestions)
    assert sizes(make(task, 0, 7_000, byte_tokenizer, corpora)).units == 50
    assert PUBLISHED_DOCUMENTS[3_500_000] == 25_600
    assert sizes(make(replace(task, documents=12), 0, 1, byte_tokenizer, corpora)).units == 12
    with pytest.raises(UsageError, match="one of the lengths 7000"):
        make(task, 0, 8_192, byte_tokenizer, corpora)


def test_same_places_is_the_published_quirk(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    for same in (True, False):
        task = replace(HQA, documents=30, same_places=same)
        places = {
            tuple(make(task, i, 7_000, byte_tokenizer, corpora).meta["gold_documents"])  # type: ignore[arg-type]
            for i in range(10)
        }
        assert (len(places) == 1) == same


def test_a_used_up_corpus_is_refused_or_given_whole(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = TASKS["qa_1"]
    assert isinstance(task, DocumentQuestions)
    with pytest.raises(UsageError, match="96 documents of the corpus") as caught:
        make(task, 0, 100_000, byte_tokenizer, corpora)
    most = int(str(caught.value).split("which make ")[1].split()[0])
    assert sizes(make(task, 0, most, byte_tokenizer, corpora)).units == 96
    whole = replace(task, whole_corpus_at_most=True)
    assert sizes(make(whole, 0, 100_000, byte_tokenizer, corpora)).units == 96


def test_squad_prefers_paragraphs_of_the_same_article(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    sample = make(TASKS["qa_1"], 0, 1_400, byte_tokenizer, corpora)  # type: ignore[arg-type]
    assert set(re.findall(r"The tower (\d)", sample.problem.context.text())) == {"0"}
    assert sample.problem.question.startswith("Answer the question based on the given documents. ")


def test_a_question_that_is_not_there_is_refused(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    with pytest.raises(UsageError, match="40 questions"):
        make(HQA, 40, 9_000, byte_tokenizer, corpora)
    with pytest.raises(UsageError, match="gold_within"):
        replace(HQA, gold_within=0.0)
