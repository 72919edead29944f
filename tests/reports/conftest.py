"""Small real stores with numbers that a reader can check by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.methods import described
from benchmarks.store import Cell, Place, Store
from core.context import Context
from core.types import Answer, Failure, Json, Problem, Sample, Turn

BuildRun = Callable[..., Path]


@dataclass(frozen=True, slots=True)
class Ended:
    """How one sample of a fabricated cell ended: with a score, or with an error's kind. {n} of a
    question is the sample's number."""

    published: float = 0.0
    strict: float = 0.0
    error: str | None = None
    reply: str = "Therefore, the answer is 42."
    prediction: str | None = "42"
    memories: tuple[str, ...] = ()
    cut: bool = False
    question: str = "What is number {n}?"
    golds: tuple[str, ...] = ("42",)
    counts: Mapping[str, int] = field(default_factory=dict)


RIGHT = Ended(1.0, 1.0)
WRONG = Ended(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Made:
    """A fabricated cell: its place in the suite, and the samples that have ended, those of the
    first draw before those of the second."""

    task: str
    length: int
    method: str
    model: str
    samples: int
    ended: Sequence[Ended] = ()
    draws: int = 1


METHODS = {
    name: described(name)
    for name in ("memagent", "gru_mem", "gru_mem@exit_gate=false", "full_context")
}
"""What methods say of themselves, as a run's settings have it."""


def settings_for(*models: str, **entry: Any) -> dict[str, Any]:
    """Settings of a run of `models`, each with the same further `entry`."""
    known = {"source": "checkpoints/x", "window": 1024, "methods": {"memagent": {}}}
    entries = {name: {**known, **entry} for name in models}
    return {"suite": "pocket", "seed": 7, "models": entries, "methods": METHODS}


@pytest.fixture
def build_run(tmp_path: Path) -> BuildRun:
    """Writes cells through the store's own writer, and returns the folder of the run."""

    def build(cells: Sequence[Made], settings: Mapping[str, Any] | None = None) -> Path:
        run_dir = tmp_path / "run"
        with Store.write(run_dir) as store:
            plan = [
                Cell(number, c.task, c.length, c.method, c.model, c.samples, c.draws)
                for number, c in enumerate(cells, 1)
            ]
            store.set_up(settings if settings is not None else settings_for("pocket"), plan)
            provenance: dict[str, Json] = {
                "command": ["run.py", "sweep", "pocket"],
                "versions": {"ray": "2.60.0"},
            }
            store.begin_session(provenance, "2026-11-20T19:00:00+00:00")
            for number, cell in enumerate(cells, 1):
                for place, ended in enumerate(cell.ended):
                    draw, index = divmod(place, cell.samples)
                    _write_sample(store, cell, (number, index, draw), ended)
        return run_dir

    return build


def _write_sample(store: Store, cell: Made, place: Place, ended: Ended) -> None:
    cell_id, index, draw = place
    replies = [*ended.memories, ended.reply]
    for number, reply in enumerate(replies):
        tag = "answer" if number == len(replies) - 1 else "memory"
        reason = "length" if ended.cut else "stop"
        turn = Turn(tag, (), reply, reason, prompt_tokens=100, completion_tokens=10, seconds=0.5)
        store.add_turn(place, number, f"hash{number}", turn)
    question = ended.question.replace("{n}", str(index))
    problem = Problem(Context(["a haystack"]), question)
    sample = Sample(f"{cell.task}-{index}", cell.task, index, problem, ended.golds, "any")
    if ended.error:
        failure = Failure(ended.error, "no reply in 120 s")
        store.finish_sample(cell_id, sample, failure, {}, draw=draw)
        return
    answer = Answer(ended.reply, ended.prediction, 7, ended.counts)
    scores = {
        "published": {"sub_em": ended.published},
        "strict": {"sub_em": ended.strict, "em": 0.0, "unparsed": float(ended.prediction is None)},
    }
    store.finish_sample(cell_id, sample, answer, scores, draw=draw)
