"""Exhibits of single samples: where reading ended, how large the memory was, what was said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.store import Cell, Store
from core.arithmetic.shapes import find_shape
from core.context import Context
from core.errors import UsageError
from core.evidence import Placed
from core.types import Answer, Evidence, Problem, Sample, TextSpan, TokenSpan, Turn
from reports.exhibits.drawing.case import wrapped
from reports.exhibits.exhibit import Material, Sampled
from reports.exhibits.papers.frontier import shared_samples, spent
from reports.exhibits.registry import EXHIBITS
from reports.exhibits.rollouts import endings, exits, rollouts
from reports.exhibits.tables import csv_of
from reports.exhibits.write import draw, gather
from reports.flops import sample_flops
from tests.reports.conftest import settings_for

CHUNK = 100
TASK = "niah_multivalue_noise"


def gated(useful: bool, memory: str, done: bool) -> str:
    """A memory turn's reply in GRU-Mem's format."""
    check, following = "yes" if useful else "no", "end" if done else "continue"
    return (
        f"<think>so</think><check>{check}</check><update>{memory}</update><next>{following}</next>"
    )


def memory_turn(reply: str, memory: str, chunk: int) -> Turn:
    return Turn(
        *("memory", (), reply, "stop", 150, len(reply), 1.0),
        reads=(TokenSpan(CHUNK * chunk, CHUNK * chunk + CHUNK),),
        memory=memory,
    )


def add(
    store: Store, cell: int, index: int, turns: Sequence[Turn], evidence: Sequence[int]
) -> None:
    """One sample answered right; `evidence`: the tokens that its pieces begin at."""
    for number, turn in enumerate(turns):
        store.add_turn((cell, index, 0), number, f"hash{number}", turn)
    problem = Problem(Context(["text"]), "Which number?")
    sample = Sample(f"{TASK}-{index}", TASK, index, problem, ("42",), "all")
    placed = [
        Placed(Evidence(0, 0, 4, "text"), TextSpan(0, 4), TokenSpan(at, at + 4), 0.5)
        for at in evidence
    ]
    exited = int("<next>end" in turns[-2].reply)
    counts = {"chunks_read": len(turns) - 1, "exited": exited} if "<next>" in turns[0].reply else {}
    scores = {"published": {"sub_em": 1.0}, "strict": {"sub_em": 1.0, "unparsed": 0.0}}
    store.finish_sample(cell, sample, Answer("It is 42.", "42", 0, counts), scores, placed)


@pytest.fixture
def material(tmp_path: Path) -> Material:
    """GRU-Mem on four samples of four chunks, MemAgent on one of them."""
    answer = Turn("answer", (), "It is 42.", "stop", 50, 10, 0.5)
    no = memory_turn(gated(False, "-", False), "none", 0)
    yes = memory_turn(gated(True, "key 42", False), "key 42", 1)
    end = memory_turn(gated(True, "key 42, 43", True), "key 42, 43", 2)
    methods = {
        name: {"chunk_tokens": CHUNK, "reply_tokens": 128} for name in ("gru_mem", "memagent")
    }
    settings = settings_for("pocket", methods=methods, source="checkpoints/pocket-base")
    run_dir = tmp_path / "run"
    with Store.write(run_dir) as store:
        cells = [
            Cell(1, TASK, 400, "gru_mem", "pocket", 4),
            Cell(2, TASK, 400, "memagent", "pocket", 1),
        ]
        store.set_up(settings, cells)
        store.begin_session({"command": ["run.py"]}, "2026-11-20T19:00:00+00:00")
        add(store, 1, 0, [no, yes, end, answer], [150, 250])  # ends at the last evidence
        add(store, 1, 1, [no, yes, end, answer], [150, 350])  # before it
        add(store, 1, 2, [no, yes, no, no, answer], [150])  # never says that it has enough
        add(store, 1, 3, [no, yes, end, answer], [150])  # one chunk too late
        plain = [
            memory_turn(word, word, n) for n, word in enumerate(("a", "ab 42", "ab 42", "ab 42"))
        ]
        add(store, 2, 0, [*plain, answer], [150, 250])
    return gather([run_dir])


def test_readings_end_early_at_or_after_the_last_evidence(material: Material) -> None:
    assert material.run is not None
    counted = endings(material.run, rollouts(material))
    assert [*counted] == [TASK]
    shares = exits(material.run, counted.values())
    assert len(shares) == 1  # MemAgent has no gate
    assert shares[0].shares == {"early": 0.25, "exact": 0.25, "late": 0.5}
    assert shares[0].samples == 4
    table = draw(EXHIBITS["grumem-figure-7"], material).texts[".csv"]
    assert "GRU-Mem,400,0.25,0.25,0.5,4" in table


def test_labels_with_commas_stay_one_column() -> None:
    assert csv_of([{"series": "pocket, greedy", "length": 400}]) == (
        'series,length\n"pocket, greedy",400\n'
    )


def test_the_memory_is_measured_turn_by_turn(material: Material) -> None:
    lines = draw(EXHIBITS["grumem-figure-6"], material).texts[".csv"].splitlines()
    memagent = [line.split(",") for line in lines if line.startswith("MemAgent")]
    # Its replies are its memories: one token a character here, and the same again once unchanged.
    assert [float(line[-1]) for line in memagent] == [1.0, 5.0, 5.0, 5.0]
    reply = gated(True, "key 42", False)
    gru = [float(line.split(",")[-1]) for line in lines if line.startswith("GRU-Mem,0,")]
    assert gru[1] == pytest.approx(len(reply) * len("key 42") / len(reply), abs=0.1)


def test_case_studies_show_the_rounds_that_matter(material: Material) -> None:
    memory = draw(EXHIBITS["memagent-case-study"], material).texts[".md"]
    assert "Round 2 of 3: holds 1 of 2 pieces of evidence" in memory
    assert "key 42, 43" in memory
    replies = draw(EXHIBITS["grumem-case-studies"], material).texts[".md"]
    assert "check yes, next end" in replies
    assert "Round 1 of 3: no evidence · check no, next continue" in replies
    assert "<think>so</think>" in replies


def test_a_case_is_the_one_that_was_asked_for(material: Material) -> None:
    run = material.run
    asked = Material((), run, material.runs, sampled=Sampled(TASK, 400, 2))
    assert "sample 2;" in draw(EXHIBITS["grumem-case-studies"], asked).texts[".md"]
    missing = Material((), run, material.runs, sampled=Sampled(index=9))
    with pytest.raises(UsageError, match="number 9"):
        draw(EXHIBITS["grumem-case-studies"], missing)


def test_long_replies_are_cut_and_counted() -> None:
    lines = wrapped("\n".join(map(str, range(40))), most_lines=5)
    assert lines[-1] == "[… 35 lines more]"
    assert wrapped("") == [""]


def test_costs_are_compared_on_the_same_samples(material: Material) -> None:
    run = material.run
    assert run is not None
    assert shared_samples(run) == {(TASK, 400): [f"{TASK}-0"]}
    gru, memagent = spent(material, run)
    assert (gru.samples, memagent.samples) == (1, 1)
    assert (gru.seconds, memagent.seconds) == (3.5, 4.5)
    shape = find_shape("checkpoints/pocket-base", Path(__file__).resolve().parents[3])
    assert shape is not None
    sizes = [(150, 1), (150, 5), (150, 5), (150, 5), (50, 10)]
    tokens, replied = sum(p + r for p, r in sizes), sum(r for _, r in sizes)
    squares = sum((p + r) ** 2 for p, r in sizes)
    assert memagent.tokens == tokens
    assert memagent.flops == sample_flops(shape, tokens, replied, squares)
    drawn = draw(EXHIBITS["frontier"], material)
    assert drawn.figures
    assert drawn.texts[".csv"].count("\n") == 3
