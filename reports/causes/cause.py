"""Why a sample failed: one cause, that of the first fact that it lost.

From the store alone: the sample's row (its evidence, golds, scores, ending) and its turns (what
each read, the memory after it, how it finished). No model is asked.

A failure is a sample with a strict score under 1. Its facts that are not in the answer were lost
somewhere on the way from the text to the answer, each at a turn; the earliest of these losses is
the cause of the failure. Facts that got as far as the last memory (or, where the answer's own
turn reads the text, its window) were lost in the answer. Where a gold stands in the last memory
word for word, facts that are only guessed are not asked any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agents.gru_mem import Gates, parse_gates
from core.errors import StoreError
from core.names import base_of
from core.types import TokenSpan, Turn
from reports.causes.facts import facts_of
from reports.causes.lifeline import Lifeline, lifelines_of
from tasks.scoring import SUB_EM

CUT_REPLY = "length"
"""The finish reason of a reply that the token budget cut."""


class Cause(StrEnum):
    """Where a failure's first fact was lost, in the order of the way that a fact goes."""

    CUT_BEFORE_READING = "cut_before_reading"
    EXIT_BEFORE_EVIDENCE = "exit_before_evidence"
    SPLIT_BY_CHUNK_EDGE = "split_by_chunk_edge"
    GATE_KEPT_OUT = "gate_kept_out"
    READ_NOT_STORED = "read_not_stored"
    BLURRED = "blurred"
    STORED_THEN_LOST = "stored_then_lost"
    IN_MEMORY_WRONG_ANSWER = "in_memory_wrong_answer"
    IN_WINDOW_WRONG_ANSWER = "in_window_wrong_answer"
    BUDGET_CUT = "budget_cut"
    UNPARSED = "unparsed"
    FAILED = "failed"
    UNKNOWN = "unknown"


MEANINGS: Mapping[Cause, tuple[str, str]] = {
    Cause.CUT_BEFORE_READING: (
        "cut away",
        "The method was not shown that part of the text, or not all of it.",
    ),
    Cause.EXIT_BEFORE_EVIDENCE: (
        "stopped too early",
        "The reading ended before the chunk that holds it.",
    ),
    Cause.SPLIT_BY_CHUNK_EDGE: (
        "split by a chunk's edge",
        "No turn read all of it at once, and the memory never held it.",
    ),
    Cause.GATE_KEPT_OUT: (
        "kept out by the gate",
        "The turn that read it said that there is nothing useful, and the memory stayed.",
    ),
    Cause.READ_NOT_STORED: (
        "read, not stored",
        "The memory after the turn that read it does not hold it, nor any later one.",
    ),
    Cause.BLURRED: (
        "blurred",
        "The memory holds it with an error, from the beginning or later.",
    ),
    Cause.STORED_THEN_LOST: (
        "stored, later lost",
        "The memory held it, and a later one does not.",
    ),
    Cause.IN_MEMORY_WRONG_ANSWER: (
        "in memory, wrong answer",
        "The last memory holds it, the answer does not.",
    ),
    Cause.IN_WINDOW_WRONG_ANSWER: (
        "in the window, wrong answer",
        "The answer's own turn read it, the answer does not hold it.",
    ),
    Cause.BUDGET_CUT: (
        "cut by the token budget",
        "The reply that should have held it was cut off.",
    ),
    Cause.UNPARSED: (
        "not parsed",
        "The reply that should have held it breaks the format.",
    ),
    Cause.FAILED: ("failed", "The sample ended in an error."),
    Cause.UNKNOWN: (
        "unknown",
        "The method does not tell what it reads or remembers, the task has nothing to look for, "
        "or the run has no turns.",
    ),
}
"""What each cause is called, and what it says, as a sentence."""


class Gate(StrEnum):
    """What a gate of GRU-Mem did in the turn of the loss."""

    UPDATE_CLOSED = "update_closed"
    UPDATE_OPEN = "update_open"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a sample failed. `cause` is None where it did not.

    `fact`: the number, in `lifelines`, of the fact that it lost first; `turn`: the turn in which
    that was, None where it was lost before the first, or is not known; `turns_lived`: how many
    turns it had been in the memory; `gate`: which gate of GRU-Mem did it; `guessed`: the fact
    has no gold to be looked for. `last_memory_turn`: the last turn that told a memory.
    """

    cause: Cause | None
    lifelines: tuple[Lifeline, ...] = ()
    fact: int | None = None
    turn: int | None = None
    turns_lived: int | None = None
    gate: Gate | None = None
    guessed: bool = False
    last_memory_turn: int | None = None


@dataclass(frozen=True, slots=True)
class _Loss:
    """One fact's end. `turn` is -1 where it was lost before the first turn."""

    turn: int
    cause: Cause
    gate: Gate | None = None
    turns_lived: int | None = None


def diagnose(row: Mapping[str, Any], turns: Sequence[Turn], metric: str = SUB_EM) -> Diagnosis:
    """The lifelines of a finished sample, and the cause of its failure if it is one.

    `row` as `Store.sample_rows` gives it, `turns` as `Store.turns_of` does, `metric` the primary
    one of its task. Without turns the cause is `failed` or `unknown`.

    Raises:
        StoreError: the sample ended well and has no score.
    """
    facts = facts_of(row) if turns else ()
    lifelines = lifelines_of(row, turns, facts)
    remembered = [n for n, turn in enumerate(turns) if turn.memory is not None]
    last = remembered[-1] if remembered else None
    if not is_failure(row, metric):
        return Diagnosis(None, lifelines, last_memory_turn=last)
    if row["status"] != "ok":
        return Diagnosis(Cause.FAILED, lifelines, last_memory_turn=last)
    if not _tells(turns):
        return Diagnosis(Cause.UNKNOWN, lifelines)
    sample = _Sample(row, turns, last)
    losses = [
        (loss.turn, line.place.start if line.place else 0, number, loss)
        for number, line in enumerate(lifelines)
        if _asked(line, lifelines) and (loss := sample.loss(line)) is not None
    ]
    first: tuple[int | None, _Loss] = (
        min(losses, key=lambda one: one[:3])[2:] if losses else sample.in_answer(lifelines)
    )
    number, loss = first
    return Diagnosis(
        loss.cause,
        lifelines,
        number,
        loss.turn if loss.turn >= 0 else None,
        loss.turns_lived,
        loss.gate,
        number is not None and lifelines[number].guessed,
        last,
    )


def is_failure(row: Mapping[str, Any], metric: str = SUB_EM) -> bool:
    """Whether a finished sample's strict score is under 1, or it ended in an error. What has no
    metric has no golds either, and fails by an error only.

    Raises:
        StoreError: it ended well and has no score.
    """
    if row["status"] != "ok":
        return True
    if not metric:
        return False
    score = row["scores"].get("strict", {}).get(metric)
    if score is None:
        raise StoreError(
            f"{row['task']} {row['length']} sample {row['index']}: no score `{metric}` under "
            "`strict`. Score the run again with `run.py rescore`, or make its report with the "
            "version that wrote it."
        )
    return bool(score < 1.0)


def _tells(turns: Sequence[Turn]) -> bool:
    """Whether the method told what it remembers, or what it read in the answer's own turn."""
    return any(turn.memory is not None for turn in turns) or bool(turns and turns[-1].reads)


def _asked(line: Lifeline, lifelines: Sequence[Lifeline]) -> bool:
    """Whether a fact may be what the failure comes from."""
    if line.guessed:
        literal = [other for other in lifelines if not other.guessed]
        return not literal or not all(other.in_last_memory for other in literal)
    return not line.in_answer


class _Sample:
    """One failed sample, to be asked where it lost each fact."""

    def __init__(
        self, row: Mapping[str, Any], turns: Sequence[Turn], last_memory_turn: int | None
    ) -> None:
        self.row = row
        self.turns = turns
        self.last = last_memory_turn
        self.gated = base_of(row["method"]) == "gru_mem"
        self.reads = [span for turn in turns for span in turn.reads]

    def loss(self, line: Lifeline) -> _Loss | None:
        """Where a fact was lost before the answer; None where it was there."""
        if self.last is None:
            return self._not_shown(line)
        if line.in_last_memory:
            return None
        if line.stored_turn is not None and line.lost_turn is not None:
            return self._after_storing(line, line.lost_turn)
        if line.place is not None and not self.reads:
            return _Loss(self.last, Cause.UNKNOWN)
        if line.read_turn is None:
            return self._not_read(line)
        return self._not_stored(line, line.read_turn)

    def in_answer(self, lifelines: Sequence[Lifeline]) -> tuple[int | None, _Loss]:
        """What the answer's turn did with facts that were all there; and the first of them."""
        turn = len(self.turns) - 1
        missing = [n for n, line in enumerate(lifelines) if not line.in_answer]
        literal = [n for n in missing if not lifelines[n].guessed]
        number = next(iter(literal or missing), None)
        if self.turns[turn].finish_reason == CUT_REPLY:
            return number, _Loss(turn, Cause.BUDGET_CUT)
        if self.row["prediction"] is None:
            return number, _Loss(turn, Cause.UNPARSED)
        if not lifelines:
            return None, _Loss(turn, Cause.UNKNOWN)
        memory = self.last is not None
        wrong = Cause.IN_MEMORY_WRONG_ANSWER if memory else Cause.IN_WINDOW_WRONG_ANSWER
        return number, _Loss(turn, wrong)

    def _not_shown(self, line: Lifeline) -> _Loss | None:
        """Of a method without a memory, which answers with the text in its window."""
        if line.place is None:
            cut = bool(self.row["truncated_tokens"])
        else:
            cut = not _covered(line.place, self.turns[-1].reads)
            if cut and line.read_turn is not None:  # an earlier turn, of which nothing is told
                return _Loss(line.read_turn, Cause.UNKNOWN)
        return _Loss(-1, Cause.CUT_BEFORE_READING) if cut else None

    def _after_storing(self, line: Lifeline, turn: int) -> _Loss:
        if self.turns[turn].finish_reason == CUT_REPLY:
            cause = Cause.BUDGET_CUT
        elif line.blurred_turn == turn:
            cause = Cause.BLURRED
        else:
            cause = Cause.STORED_THEN_LOST
        return _Loss(turn, cause, self._update_gate(turn), line.turns_lived)

    def _not_read(self, line: Lifeline) -> _Loss:
        """Of a fact that no turn read, or not all of it; or of one without a place."""
        last = self.last or 0
        cut = bool(self.row["truncated_tokens"])
        furthest = max((span.end for span in self.reads), default=0)
        exited = bool(self.row["counts"].get("exited"))
        if line.place is None:
            if not cut and not exited:
                return _Loss(last, Cause.READ_NOT_STORED, self._update_gate(last))
        elif not exited:
            cut = cut or line.place.end <= furthest
        else:
            cut = line.place.end <= furthest
        if cut:
            return _Loss(-1, Cause.CUT_BEFORE_READING)
        return _Loss(last, Cause.EXIT_BEFORE_EVIDENCE, Gate.EXIT if self.gated else None)

    def _not_stored(self, line: Lifeline, turn: int) -> _Loss:
        """Of a fact that was read, and that no memory held word for word."""
        if line.split:
            return _Loss(turn, Cause.SPLIT_BY_CHUNK_EDGE, self._update_gate(turn))
        if self.turns[turn].finish_reason == CUT_REPLY:
            return _Loss(turn, Cause.BUDGET_CUT)
        if line.blurred_turn is not None:
            gate = self._update_gate(line.blurred_turn)
            return _Loss(line.blurred_turn, Cause.BLURRED, gate)
        if self.gated and self._gates(turn) is None:
            return _Loss(turn, Cause.UNPARSED)
        gate = self._update_gate(turn)
        closed = gate is Gate.UPDATE_CLOSED
        return _Loss(turn, Cause.GATE_KEPT_OUT if closed else Cause.READ_NOT_STORED, gate)

    def _gates(self, turn: int) -> Gates | None:
        return parse_gates(self.turns[turn].reply)

    def _update_gate(self, turn: int) -> Gate | None:
        gates = self._gates(turn) if self.gated else None
        if gates is None:
            return None
        return Gate.UPDATE_OPEN if gates.useful else Gate.UPDATE_CLOSED


def _covered(place: TokenSpan, reads: Sequence[TokenSpan]) -> bool:
    """Whether one of the spans holds all of a place."""
    return any(span.start <= place.start and place.end <= span.end for span in reads)
