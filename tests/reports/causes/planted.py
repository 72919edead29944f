"""Runs whose samples fail on purpose, each by a cause that is known beforehand.

The real tasks, methods, sweep and store; only the model is scripted. What a sample is to fail by
goes round by its number; a needle that a chunk's edge happens to split is found by placing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.methods import described, find_method
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell
from benchmarks.sweep import Limits, sweep
from core.errors import RequestTimeout
from core.evidence import place
from core.methods import method_settings
from core.names import base_of
from core.tokens import Tokenizer
from core.types import Message, Sample, Sampling, Turn
from reports.causes.cause import Cause, Gate
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials, Task
from tests.benchmarks.test_sweep import served_by

LENGTH, CHUNK, SEED = 2048, 256, 3
LIVED = 2
"""Turns that a fact lives where it is stored and lost."""
NOTHING = "No previous memory"


@dataclass(frozen=True, slots=True)
class Truth:
    """What a sample was made to fail by; None where it is to be right."""

    cause: Cause | None
    gate: Gate | None = None
    turns_lived: int | None = None
    turn: int | None = None
    fact: int | None = 0
    guessed: bool = False


@dataclass(slots=True)
class Part:
    """What the scripted model plays in a sample. `values`: the facts to be remembered; `read`:
    the turn that reads the first of them."""

    kind: str
    values: tuple[str, ...]
    read: int
    truth: Truth
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """One cell: a method with a model of its own, and the kinds that its samples take in turn."""

    model: str
    method: str
    task: str
    kinds: tuple[str, ...]
    samples: int


MEMORY_KINDS = (
    *("right", "read_not_stored", "lost", "blurred", "blurred_later", "memory_cut"),
    *("wrong_answer", "unparsed", "answer_cut", "failed"),
)
GATE_KINDS = (
    *("right", "gate_closed", "not_in_update", "exit", "broken_turn", "lost", "blurred"),
    *("wrong_answer", "unparsed", "answer_cut"),
)
WINDOW_KINDS = ("right", "wrong_answer", "unparsed", "answer_cut", "failed")

GROUPS = (
    Group("reader", "memagent", "niah_single_1", MEMORY_KINDS, 80),
    Group("capped", "memagent@context_cap=600", "niah_single_1@depth=0.5", ("cut",), 12),
    Group("gated", "gru_mem", "niah_single_1", GATE_KINDS, 80),
    Group("several", "memagent", "niah_multivalue_noise", ("several",), 10),
    Group("window", "full_context", "niah_single_1@depth=0", WINDOW_KINDS, 20),
    Group("too_long", "full_context", "niah_single_1@depth=0.5", ("cut",), 12),
)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "memagent": {"chunk_tokens": CHUNK, "reply_tokens": 64},
    "gru_mem": {"chunk_tokens": CHUNK, "reply_tokens": 64},
    "full_context": {"input_tokens": 700, "output_tokens": 64},
}


def planted_run(tokenizer: Tokenizer, run_dir: Path) -> dict[tuple[str, int], Truth]:
    """Runs all groups into the folder; (model, index) -> what was planted."""
    tasks = {group.task: find_task(group.task) for group in GROUPS}
    parts = {group.model: _parts(group, tasks[group.task], tokenizer) for group in GROUPS}
    models, cells = {}, []
    for number, group in enumerate(GROUPS):
        settings = method_settings(
            find_method(group.method), group.method, SETTINGS[base_of(group.method)]
        )
        methods = {group.method: settings}
        sampling = Sampling(seed=5)
        models[group.model] = ModelPlan(
            group.model, group.model, None, tokenizer, sampling, methods
        )
        cells.append(Cell(number, group.task, LENGTH, group.method, group.model, group.samples))
    settings = {
        "seed": SEED,
        "tasks": {name: {"metric": "sub_em"} for name in tasks},
        "methods": {name: described(name) for name in {g.method for g in GROUPS}},
    }
    plan = Plan("planted", SEED, tuple(cells), tasks, models, Corpora(None), settings)
    readers: dict[str, Any] = {name: Scripted(found) for name, found in parts.items()}
    sweep(plan, run_dir, served_by(readers), dict.fromkeys(models, Limits(concurrency=4)))
    return {
        (model, index): part.truth
        for model, found in parts.items()
        for index, part in enumerate(found.values())
    }


def _parts(group: Group, task: Task, tokenizer: Tokenizer) -> dict[str, Part]:
    """Question -> the part of its sample."""
    parts: dict[str, Part] = {}
    for index in range(group.samples):
        sample = task.sample(Coordinates(index, LENGTH, SEED), Materials(tokenizer, Corpora(None)))
        part = _part(group, sample, index, tokenizer)
        assert sample.problem.question not in parts
        parts[sample.problem.question.strip()] = part
    return parts


def _part(group: Group, sample: Sample, index: int, tokenizer: Tokenizer) -> Part:
    kind = group.kinds[index % len(group.kinds)]
    placement = place(sample.problem.context, sample.evidence, tokenizer)
    spans = [one.tokens for one in placement.evidence]
    first, last = spans[0].start // CHUNK, (spans[0].end - 1) // CHUNK
    chunks = placement.chunks(CHUNK)
    gated = base_of(group.method) == "gru_mem"
    if base_of(group.method) == "full_context":
        truth = WINDOW_TRUTHS[kind]
    elif kind == "several":
        truth = _several_lost([span.start // CHUNK for span in spans])
    elif first != last and kind not in ("right", "failed", "cut"):
        kind = "split"
        gate = Gate.UPDATE_CLOSED if gated else None
        truth = Truth(Cause.SPLIT_BY_CHUNK_EDGE, gate, turn=last)
    else:
        if first + LIVED >= chunks and kind in ("lost", "blurred_later"):
            kind = "wrong_answer"  # no turn is left to lose it in
        if first == 0 and kind == "exit":
            kind = "gate_closed"
        truth = _memory_truth(kind, first, chunks, gated)
    return Part(kind, sample.golds, first, truth)


WINDOW_TRUTHS: Mapping[str, Truth] = {
    "right": Truth(None, fact=None),
    "cut": Truth(Cause.CUT_BEFORE_READING),
    "wrong_answer": Truth(Cause.IN_WINDOW_WRONG_ANSWER, turn=0),
    "unparsed": Truth(Cause.UNPARSED, turn=0),
    "answer_cut": Truth(Cause.BUDGET_CUT, turn=0),
    "failed": Truth(Cause.FAILED, fact=None),
}


def _several_lost(read: Sequence[int]) -> Truth:
    """The fact that is read first goes a turn later, and the answer leaves out all."""
    first = read.index(min(read))
    return Truth(Cause.STORED_THEN_LOST, turns_lived=1, turn=read[first] + 1, fact=first)


def _memory_truth(kind: str, read: int, chunks: int, gated: bool) -> Truth:
    """`chunks` are read, so that the turn of the answer has that number."""
    opened = Gate.UPDATE_OPEN if gated else None
    return {
        "right": Truth(None, fact=None),
        "cut": Truth(Cause.CUT_BEFORE_READING),
        "failed": Truth(Cause.FAILED, fact=None),
        "read_not_stored": Truth(Cause.READ_NOT_STORED, turn=read),
        "not_in_update": Truth(Cause.READ_NOT_STORED, Gate.UPDATE_OPEN, turn=read),
        "gate_closed": Truth(Cause.GATE_KEPT_OUT, Gate.UPDATE_CLOSED, turn=read),
        "broken_turn": Truth(Cause.UNPARSED, turn=read),
        "exit": Truth(Cause.EXIT_BEFORE_EVIDENCE, Gate.EXIT, turn=0),
        "lost": Truth(Cause.STORED_THEN_LOST, opened, LIVED, read + LIVED),
        "blurred": Truth(Cause.BLURRED, opened, turn=read),
        "blurred_later": Truth(Cause.BLURRED, opened, LIVED, read + LIVED),
        "memory_cut": Truth(Cause.BUDGET_CUT, turn=read),
        "wrong_answer": Truth(Cause.IN_MEMORY_WRONG_ANSWER, turn=chunks),
        "unparsed": Truth(Cause.UNPARSED, turn=chunks),
        "answer_cut": Truth(Cause.BUDGET_CUT, turn=chunks),
    }[kind]


@dataclass(slots=True)
class Scripted:
    """The model of one group."""

    parts: Mapping[str, Part]
    seen: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def check(self, model: str) -> None:
        self.seen.append(model)

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
    ) -> Turn:
        text = messages[-1].content
        part = next(part for question, part in self.parts.items() if question in text)
        if part.kind == "failed":
            raise RequestTimeout("late")
        number, part.turn = part.turn, part.turn + 1
        if tag == "answer":
            reply, reason = _answer(part, boxed="\\boxed" in text)
        elif "<check>" in text:
            reply, reason = _gated(part, number), "stop"
        else:
            reply, reason = _memory(part, number)
        return Turn(tag, tuple(messages), reply, reason, len(text), len(reply), 0.01)


def _answer(part: Part, *, boxed: bool) -> tuple[str, str]:
    if part.kind == "unparsed":
        return "I do not know.", "stop"
    if part.kind == "answer_cut":
        return "Therefore, the", "length"
    said = " ".join(part.values) if part.kind == "right" else "unknown"
    return (f"\\boxed{{{said}}}" if boxed else f"Therefore, the answer is {said}."), "stop"


def _memory(part: Part, number: int) -> tuple[str, str]:
    """A reply of MemAgent, and how it finished: the memory after turn `number`."""
    value = part.values[0]
    since = number - part.read
    if part.kind == "several":
        return _several(part, number), "stop"
    if part.kind == "memory_cut" and since == 0:
        return "Found: the number", "length"
    if since < 0 or part.kind in ("read_not_stored", "memory_cut", "split", "cut"):
        return NOTHING, "stop"
    if part.kind == "blurred" or (part.kind == "blurred_later" and since >= LIVED):
        return f"Found: {_wrong(value)}.", "stop"
    if part.kind == "lost" and since >= LIVED:
        return NOTHING, "stop"
    return f"Found: {value}.", "stop"


def _several(part: Part, number: int) -> str:
    gone = part.truth.fact if number >= (part.truth.turn or 0) else None
    return "Found: " + ", ".join(v for place, v in enumerate(part.values) if place != gone)


def _gated(part: Part, number: int) -> str:
    since = number - part.read
    if part.kind == "exit":
        return _gates("no", NOTHING, "end")
    if part.kind == "broken_turn" and since == 0:
        return "<check>yes</check> I forgot the rest"
    if part.kind == "not_in_update" and since == 0:
        return _gates("yes", "Nothing of use.")
    if part.kind == "lost" and since == LIVED:
        return _gates("yes", "All is forgotten.")
    if since == 0 and part.kind not in ("gate_closed", "split"):
        value = part.values[0]
        return _gates("yes", f"Found: {_wrong(value) if part.kind == 'blurred' else value}.")
    return _gates("no", NOTHING)


def _gates(check: str, update: str, following: str = "continue") -> str:
    return f"<check>{check}</check><update>{update}</update><next>{following}</next>"


def _wrong(number: str) -> str:
    """The number with another digit in its middle."""
    return number[:3] + str((int(number[3]) + 1) % 10) + number[4:]
