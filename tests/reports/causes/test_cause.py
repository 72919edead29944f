"""One sample at a time: what is traced, what counts as held, and which loss comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.ledger import ledger
from benchmarks.store import Cell, Store
from core.context import Context
from core.errors import StoreError
from core.evidence import Placed
from core.types import (
    Answer,
    Evidence,
    Failure,
    Problem,
    Sample,
    TextSpan,
    TokenSpan,
    Turn,
)
from reports.causes.cause import Cause, Diagnosis, Gate, diagnose
from reports.causes.diagnosed import Runs
from reports.causes.survey import Survey

NUMBER, NEAR, OTHER = "4821937", "4826937", "1035528"


def row(golds: list[str], evidence: list[tuple[str, int, int]], **given: Any) -> dict[str, Any]:
    """A finished sample that scored 0, as the store gives it."""
    plain = {
        "task": "t",
        "length": 1024,
        "method": "memagent",
        "model": "m",
        "index": 0,
        "question": "Which number is it?",
        "golds": golds,
        "reply": "none",
        "status": "ok",
        "prediction": "none",
        "truncated_tokens": 0,
        "counts": {},
        "scores": {"strict": {"sub_em": 0.0}},
        "evidence": [{"text": t, "tokens": [a, b], "depth": 0.0} for t, a, b in evidence],
    }
    return plain | given


def read(*memories: str | None, chunk: int = 100) -> list[Turn]:
    """Turns that read a chunk each and leave these memories, and the answer's."""
    turns = [
        Turn(
            *("memory", (), memory or "", "stop", 10, 10, 1.0),
            reads=(TokenSpan(n * chunk, (n + 1) * chunk),),
            memory=memory,
        )
        for n, memory in enumerate(memories)
    ]
    return [*turns, Turn("answer", (), "none", "stop", 10, 10, 1.0)]


def needle(start: int = 110, end: int = 120) -> tuple[str, int, int]:
    return f"The number is {NUMBER}.", start, end


def found(*memories: str, **given: Any) -> Diagnosis:
    return diagnose(row([NUMBER], [needle()], **given), read(*memories))


def test_a_lifeline_tells_reading_storing_changes_and_loss() -> None:
    told = [f"It is {NUMBER}.", f"It is {NUMBER}. So.", f"Perhaps it is {NUMBER}."]
    diagnosis = found("nothing", *told, "nothing", told[0], told[0], f"{NEAR}?", "gone")
    (line,) = diagnosis.lifelines
    assert (line.fact, line.place) == (NUMBER, TokenSpan(110, 120))
    assert (line.read_turn, line.stored_turn, line.lost_turn) == (1, 1, 7)
    assert line.changed_turns == (3, 4, 5)  # told otherwise, gone, back
    assert line.blurred_turn == 7
    assert not any((line.in_last_memory, line.in_answer, line.guessed, line.split))
    assert (diagnosis.cause, diagnosis.turn, diagnosis.turns_lived) == (Cause.BLURRED, 7, 6)


@pytest.mark.parametrize(
    ("memories", "cause"),
    [
        (("", NUMBER, "it is 4,821,937"), Cause.IN_MEMORY_WRONG_ANSWER),
        (("", f"a,b,{NUMBER},c", f"a;{NUMBER}"), Cause.IN_MEMORY_WRONG_ANSWER),
        (("", f"9{NUMBER}9", f"x{NUMBER}"), Cause.BLURRED),  # part of another word
        (("", NEAR, NEAR), Cause.BLURRED),
        (("", OTHER, OTHER), Cause.READ_NOT_STORED),
        ((NEAR, NEAR, NEAR), Cause.READ_NOT_STORED),  # it was there before, so it is another
        (("", NUMBER, OTHER), Cause.STORED_THEN_LOST),
        (("", NUMBER, NEAR), Cause.BLURRED),
    ],
)
def test_how_a_memory_holds_a_fact(memories: tuple[str, ...], cause: Cause) -> None:
    assert found(*memories).cause is cause


def test_the_first_loss_is_the_cause() -> None:
    two = row([NUMBER, OTHER], [needle(), (f"Then {OTHER}.", 220, 230)])
    diagnosis = diagnose(two, read("", NUMBER, NUMBER, NUMBER, "nothing"))
    assert (diagnosis.cause, diagnosis.fact, diagnosis.turn) == (Cause.READ_NOT_STORED, 1, 2)
    diagnosis = diagnose(two, read("", NUMBER, OTHER, "nothing"))
    assert (diagnosis.cause, diagnosis.fact) == (Cause.STORED_THEN_LOST, 0)
    answered = two | {"prediction": NUMBER}  # what the answer holds was not lost
    assert diagnose(answered, read("", NUMBER, OTHER, "nothing")).fact == 1


def test_a_place_that_no_turn_read_whole() -> None:
    split = row([NUMBER], [needle(195, 205)])
    diagnosis = diagnose(split, read("", "4821", "937"))
    assert (diagnosis.cause, diagnosis.turn) == (Cause.SPLIT_BY_CHUNK_EDGE, 2)
    assert diagnose(split, read("", "", NUMBER, "")).cause is Cause.STORED_THEN_LOST
    unread = row([NUMBER], [needle(910, 920)], counts={"exited": 1}, method="gru_mem")
    diagnosis = diagnose(unread, read("", ""))
    assert (diagnosis.cause, diagnosis.gate) == (Cause.EXIT_BEFORE_EVIDENCE, Gate.EXIT)
    cut = row([NUMBER], [needle(910, 920)], truncated_tokens=500)
    diagnosis = diagnose(cut, read("", ""))
    assert (diagnosis.cause, diagnosis.turn) == (Cause.CUT_BEFORE_READING, None)


def test_what_is_not_literal_is_traced_by_its_words_and_said_to_be_a_guess() -> None:
    steps = [
        ("Orsk was founded by Vela Brandt in 1804.", 10, 20),
        ("Brandt was born in Tarn.", 110, 120),
    ]
    asked = row(["yes"], steps, question="Was the founder of Orsk born in Tarn?")
    asked["scores"] = {"strict": {"sub_em": 0.0, "em": 0.0}}
    diagnosis = diagnose(asked, read("Vela Brandt founded it, 1804", "Brandt born", "Vela Brandt"))
    assert [line.guessed for line in diagnosis.lifelines] == [True, True]
    assert diagnosis.guessed
    # A gold that the last memory holds word for word is worth more than a guess.
    known = row(["Tarn"], steps, question="Where was the founder of Orsk born?")
    known["scores"] = {"strict": {"sub_em": 0.0, "em": 0.0}}
    diagnosis = diagnose(known, read("nothing", "Tarn", "Tarn"))
    assert (diagnosis.cause, diagnosis.fact) == (Cause.IN_MEMORY_WRONG_ANSWER, 1)
    assert not diagnosis.guessed
    counted = diagnose(row(["stew", "train"], []), read("stew", "stew", "stew"))
    assert (counted.cause, counted.fact, counted.guessed) == (Cause.READ_NOT_STORED, 1, True)


def test_methods_that_do_not_tell_have_no_cause() -> None:
    silent = [replace(turn, reads=(), memory=None) for turn in read("", NUMBER)]
    assert diagnose(row([NUMBER], [needle()]), silent).cause is Cause.UNKNOWN
    assert diagnose(row([NUMBER], [needle()]), []).cause is Cause.UNKNOWN
    broken = row([NUMBER], [needle()], status="error", scores={})
    assert diagnose(broken, silent).cause is Cause.FAILED
    only_memory = [replace(turn, reads=()) for turn in read("", NUMBER, "")]
    assert diagnose(row([NUMBER], [needle()]), only_memory).cause is Cause.STORED_THEN_LOST
    never = [replace(turn, reads=()) for turn in read("", "")]
    assert diagnose(row([NUMBER], [needle()]), never).cause is Cause.UNKNOWN
    summary = row(["A long text."], [], scores={"strict": {"recall": 0.3}})
    assert diagnose(summary, read("A text"), "recall").cause is Cause.UNKNOWN


def test_what_is_right_has_no_cause_and_what_has_no_score_is_refused() -> None:
    right = found("", NUMBER, scores={"strict": {"sub_em": 1.0}})
    assert right.cause is None
    assert right.lifelines[0].in_last_memory
    with pytest.raises(StoreError, match="no score `sub_em`"):
        found("", NUMBER, scores={})


TEXTS = st.lists(st.sampled_from(["", NUMBER, NEAR, OTHER, "stew", "Brandt", "yes"]), max_size=3)
SPANS = st.builds(lambda start, size: TokenSpan(start, start + size), *[st.integers(1, 300)] * 2)
TURNS = st.builds(
    lambda tag, text, cut, reads, told: Turn(
        *(tag, (), " ".join(text), "length" if cut else "stop", 10, 10, 1.0),
        reads=tuple(reads),
        memory=" ".join(text) if told else None,
    ),
    *(st.sampled_from(["memory", "answer"]), TEXTS, st.booleans()),
    *(st.lists(SPANS, max_size=2), st.booleans()),
)
PIECES = st.tuples(TEXTS, SPANS)
METRICS = st.sampled_from(
    [{"sub_em": 0.0}, {"sub_em": 0.5}, {"sub_em": 1.0}, {"sub_em": 0.0, "em": 0.0}]
)
ENDINGS = st.one_of(
    st.builds(Failure, st.just("timeout"), st.just("late")),
    st.builds(
        lambda said, parsed, cut, exited: Answer(
            " ".join(said), " ".join(said) if parsed else None, cut, {"exited": int(exited)}
        ),
        *(TEXTS, st.booleans(), st.integers(0, 50), st.booleans()),
    ),
)
GOLDS = st.lists(st.sampled_from([NUMBER, OTHER, "yes", "stew", "..."]), min_size=1, max_size=3)
SAMPLES = st.tuples(
    GOLDS, st.lists(PIECES, max_size=3), st.lists(TURNS, max_size=5), ENDINGS, METRICS
)


@given(cells=st.lists(st.lists(SAMPLES, max_size=3), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_causes_of_any_run_add_up_to_its_failures(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[Any]]
) -> None:
    run_dir = tmp_path_factory.mktemp("random")
    methods = ("memagent", "gru_mem", "full_context")
    with Store.write(run_dir) as store:
        plan = [
            Cell(number, "t", 1024, methods[number], "m", len(samples))
            for number, samples in enumerate(cells)
        ]
        store.set_up({"tasks": {"t": {"metric": "sub_em"}}}, plan)
        for number, samples in enumerate(cells):
            for index, (golds, pieces, turns, ending, metrics) in enumerate(samples):
                for place, turn in enumerate(turns):
                    store.add_turn((number, index, 0), place, "hash", turn)
                problem = Problem(Context(["text"]), "Which number is it?")
                sample = Sample(f"{number}-{index}", "t", index, problem, tuple(golds), "all")
                placed = [
                    Placed(Evidence(0, 0, 1, " ".join(text)), TextSpan(0, 1), span, 0.0)
                    for text, span in pieces
                ]
                scores = {} if isinstance(ending, Failure) else {"strict": metrics}
                store.finish_sample(number, sample, ending, scores, placed)
        attempted = [row.attempted for row in ledger(store)]
    runs = Runs([run_dir])
    survey = Survey.of(runs)
    for one in runs.diagnosed(range(len(cells))):
        survey.add(one)
    assert [cell.finished for cell in survey.cells] == attempted
    for counted, samples in zip(survey.cells, cells, strict=True):
        failed = sum(isinstance(e, Failure) or m["sub_em"] < 1 for *_, e, m in samples)
        assert counted.causes.total() == counted.failures == failed
