"""Scores under every profile, and the verdicts of the published programs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from core.context import Context
from core.errors import UsageError
from core.types import Answer, Json, Problem, Sample
from tasks import records
from tasks.registry import TASKS, find_task
from tasks.scoring import (
    ANY,
    SUMMARY,
    Scores,
    normalize,
    primary_metric,
    score,
    scored,
    token_f1,
    verify,
)
from tests.conftest import SHARED

FILE = SHARED / "golden" / "scoring.jsonl"
VERDICTS = ("extracted", "boxed", "published", "published_boxed", "ruler", "train_strict")


def score_record(record: dict[str, Any]) -> dict[str, Json]:
    return asyncio.run(records.score_record(record))


@pytest.mark.skipif(not FILE.is_file(), reason="no golden verdicts beside the project")
def test_all_golden_verdicts_come_out_equal() -> None:
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 400
    for row in rows:
        ours = score_record({name: row[name] for name in ("kind", "reply", "golds")})
        assert {v: ours[v] for v in VERDICTS} == {v: row[v] for v in VERDICTS}, row["reply"]


def qa(prediction: str | None, *golds: str, reply: str = "") -> dict[str, dict[str, float]]:
    return score(reply or f"the answer is {prediction}", prediction, golds, "any")


def test_published_takes_a_prediction_inside_the_gold_and_the_first_gold_only() -> None:
    assert qa("York", "New York")["published"]["sub_em"] == 1
    assert qa("York", "New York")["strict"]["sub_em"] == 0
    assert qa("Ten", "14", "Ten")["published"]["sub_em"] == 0
    assert qa("Ten", "14", "Ten")["strict"] == {"sub_em": 1, "em": 1, "f1": 1, "unparsed": 0}


def test_without_a_mark_published_is_zero_and_strict_reads_the_whole_reply() -> None:
    verdicts = qa(None, "Seine", reply="<think>the Rhine</think>It is the Seine, I think.")
    assert verdicts["published"] == {"sub_em": 0, "em": 0, "f1": 0}
    assert verdicts["strict"]["sub_em"] == verdicts["strict"]["unparsed"] == 1
    assert verdicts["ruler"] == {"string_match": 1}


def test_reasoning_does_not_count_as_the_reply() -> None:
    verdicts = qa(None, "Rhine", reply="<think>the Rhine</think>Who knows")
    assert verdicts["strict"]["sub_em"] == 0


def test_an_empty_prediction_scores_zero_but_an_article_does_not_as_published() -> None:
    assert qa("", "Seine")["published"]["sub_em"] == 0
    assert qa("the", "Seine")["published"]["sub_em"] == 1
    assert qa("the", "Seine")["strict"]["sub_em"] == 0


def test_a_gold_that_normalizes_to_nothing_is_not_found_everywhere() -> None:
    assert qa("Lovelace", "The The")["strict"]["sub_em"] == 0
    assert qa("It is The The.", "The The")["strict"]["sub_em"] == 1


@pytest.mark.parametrize(
    ("said", "gold", "found"),
    [
        ("unknown", "no", 0),
        ("No, it is not.", "no", 1),
        ("Yorkshire", "York", 0),
        ("in New-York, 1999", "NewYork 1999", 1),
        ("the new Mayor of York", "Mayor York", 0),
        ("Mayor of the York", "mayor of York", 1),
        ("a C#-like language", "#", 1),
        ("a C-like language", "#", 0),
        ("Nothing", "The", 0),
    ],
)
def test_strict_finds_whole_words_in_a_row(said: str, gold: str, found: int) -> None:
    assert qa(said, gold)["strict"]["sub_em"] == found


@pytest.mark.parametrize(
    ("said", "gold", "found"),
    [
        ("1234567, 7654321", "1234567", 1),
        ("1234567,7654321", "7654321", 1),
        ("12345678", "1234567", 0),
        ("1,234,567", "1234567", 1),
        ("0a1b2c3d-0000-4000-8000-00000000000a.", "0A1B2C3D-0000-4000-8000-00000000000A", 1),
        ("0a1b2c3d-0000-4000-8000-00000000000ab", "0a1b2c3d-0000-4000-8000-00000000000a", 0),
        ("the key is quiet-river", "quiet-river", 1),
        ("unquiet-river", "quiet-river", 0),
        ("ABCDE|FGHIJ", "fghij", 1),
        ("XABCDE", "ABCDE", 0),
        ("alerts", "alert", 0),
        ("a, b, the", "the", 1),
    ],
)
def test_strict_finds_each_of_a_list_as_whole_words(said: str, gold: str, found: int) -> None:
    assert score(said, said, (gold,), "all")["strict"]["sub_em"] == found


def answered(said: str) -> tuple[Answer, Sample]:
    problem = Problem(Context([]), "Who?")
    return Answer(said, said), Sample("1", "own", 0, problem, ("York",), "any")


def test_a_scorer_may_be_async_and_names_its_primary_metric() -> None:
    class Graded:
        metric = "grade"

        async def __call__(self, answer: Answer, sample: Sample) -> Scores:
            await asyncio.sleep(0)
            return {"strict": {"grade": float(answer.reply in sample.golds)}}

    scores = asyncio.run(scored(Graded(), *answered("York")))
    assert scores == {"strict": {"grade": 1}, "published": {"grade": 1}}
    assert asyncio.run(scored(ANY, *answered("York")))["strict"]["sub_em"] == 1
    assert [primary_metric(one) for one in (Graded(), ANY, SUMMARY)] == [
        "grade",
        "sub_em",
        "recall",
    ]
    assert primary_metric(lambda answer, sample: {}) == "sub_em"


@pytest.mark.parametrize(
    ("found", "wrong"),
    [({}, "strict has no sub_em"), ({"strict": {"sub_em": 7.0}}, "expected 0 to 1")],
)
def test_a_scorers_own_mistakes_are_told(found: Scores, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        asyncio.run(scored(lambda answer, sample: found, *answered("York")))


def test_every_task_scores_its_golds_by_its_own_match_and_primary_metric() -> None:
    for name, task in TASKS.items():
        assert records.scorer_of_kind(name) == (task.match, task.scorer)
        scores = asyncio.run(scored(task.scorer, *answered("York")))
        assert scores["strict"][primary_metric(task.scorer)] == 1, name


def test_a_record_of_a_task_with_settings_is_scored_as_the_task() -> None:
    row = score_record({"kind": "vt@hops=2", "reply": "ABCDE", "golds": ["ABCDE", "FGHIJ"]})
    assert row["strict"] == {"sub_em": 0.5, "unparsed": 1}
    assert find_task("vt@hops=2").match == "all"


def test_all_golds_count_by_share() -> None:
    golds = ("1234567", "7654321", "1111111", "2222222")
    verdicts = score("x 1234567 1111111", "1234567", golds, "all")
    assert verdicts["published"] == {"sub_em": 0.25}
    assert verdicts["ruler"] == {"string_match": 0.5}
    assert score("VAR abcde", None, ("ABCDE",), "all")["strict"] == {"sub_em": 1, "unparsed": 1}


def test_normalization_and_f1_are_those_of_the_data_sets() -> None:
    assert normalize("The  U.S.A., a place") == "usa place"
    assert token_f1("new york city", "york city") == pytest.approx(0.8)
    assert token_f1("yes it is", "yes") == 0
    assert token_f1("", "") == 0


def test_the_training_verifier_wants_equality_near_the_end() -> None:
    assert verify(r"so \boxed{New  York}", ["new york"]) == 1
    assert verify(r"so \boxed{York}", ["New York"]) == 0
    assert verify(r"\boxed{York}" + "x" * 300, ["York"]) == 0
    assert verify(r"\boxed{b}", ["a", "b"]) == 1


def test_a_record_keeps_its_fields_and_gets_strict() -> None:
    row = score_record({"kind": "qa_1", "reply": r"\boxed{Ten}", "golds": ["10", "Ten"], "n": 7})
    assert row["n"] == 7
    assert row["strict"] == {"sub_em": 1, "em": 1, "f1": 1, "unparsed": 0}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"reply": "x", "golds": ["a"]}, "'kind' is missing"),
        ({"kind": "qa_1", "golds": ["a"]}, "'reply' is missing"),
        ({"kind": "qa_1", "reply": None, "golds": ["a"]}, "'reply': got None"),
        ({"kind": "qa_1", "reply": "x", "golds": "a"}, "expected a list of strings"),
        ({"kind": "qa_1", "reply": "x", "golds": [3]}, "expected a list of strings"),
        ({"kind": "qa_1", "reply": "x", "golds": []}, "at least one"),
        ({"kind": "qa_1", "reply": "x", "golds": [" "]}, "none of them empty"),
        ({"kind": "chess", "reply": "x", "golds": ["a"]}, "kind: got 'chess'"),
    ],
)
def test_a_bad_record_is_refused_with_its_problem(record: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        score_record(record)


def test_a_thought_that_was_cut_is_no_answer_under_strict() -> None:
    thought = "<think>It may be Paris. So the answer is Paris"
    for prediction in ("Paris", None):
        scores = score(thought, prediction, ["Paris"], "any")
        assert scores["strict"]["sub_em"] == 0.0
    whole = score("<think>London?</think>the answer is Paris", "Paris", ["Paris"], "any")
    assert whole["strict"]["sub_em"] == 1.0
