"""What a rollout earns: the outcome, and what GRU-Mem's gates earn besides (PROTOCOL 3 and 4).

MemAgent (arXiv:2507.02259, section 3.2): one outcome reward for the whole trajectory, from its
last answer. GRU-Mem (arXiv:2602.10560, section 3.3): outcome + exit + format for the whole
trajectory, and one update reward a memory turn.

Worked example: evidence in chunks 1 and 3 of 5, the replies say no, yes, no, yes + end, and the
answer is right -> update (+1, +1, +1, +1), exit 0, format 1, outcome 1, trajectory 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agents.gru_mem import Gates, in_paper_format, parse_gates
from core.answers import extract_answer, extract_boxed
from core.errors import UsageError
from core.evidence import place
from core.outside import is_outside, load_outside
from core.tokens import Tokenizer
from core.types import Answer, Sample, Trajectory
from tasks.scoring import REWARD_WINDOW, latex_plain, verify

EXIT_EARLY, EXIT_LATE = -0.75, -0.5

Outcome = Callable[[Sample, Trajectory], float]
ExitKind = Literal["early", "exact", "late"]
FormatRule = Literal["paper", "gates"]


@dataclass(frozen=True, slots=True)
class GruRewards:
    """GRU-Mem's rewards of one rollout. `update`: one a memory turn that was read."""

    outcome: float
    exit: float
    format: float
    update: tuple[float, ...]

    @property
    def trajectory(self) -> float:
        """What all turns of the rollout share."""
        return self.outcome + self.exit + self.format


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What the gates did, for the curves; sums over rollouts make the shares.

    `exit_deviation`: chunks read minus chunks up to the last evidence; it and `exit_kind` are
    None where no evidence is known. `present_*` count turns on chunks that hold evidence,
    `free_*` turns on chunks that hold none; both are 0 where no evidence is known. `in_format`:
    see the function of that name.
    """

    exit_kind: ExitKind | None
    exit_deviation: int | None
    present_turns: int
    present_right: int
    free_turns: int
    free_right: int
    in_format: bool


def outcome_reward(sample: Sample, trajectory: Trajectory) -> float:
    """The strict verifier on the answer of a rollout, 0..1; 0 for a failure or no answer.

    One answer with aliases (`any`): 1 if what the answer mark within the last 300 characters
    holds equals a gold, spaces and LaTeX spacing apart. The mark is the one that the method
    itself asks for: \\boxed{} as published, or `the answer is`. `all`: the share of golds
    found in the method's own prediction.

    Raises:
        UsageError: the sample asks for a summary; no paper trains on those.
    """
    if sample.match == "summary":
        raise UsageError(f"{sample.task}: summaries have no training reward; train on another task")
    answer = trajectory.answer
    if trajectory.failure is not None or answer is None or answer.prediction is None:
        return 0.0
    if sample.match == "all":
        said = answer.prediction.lower()
        return sum(gold.lower() in said for gold in sample.golds) / len(sample.golds)
    return _verified(answer, answer.prediction, sample.golds)


def outcome_of(name: str | None) -> Outcome:
    """The outcome reward that a recipe names, `my_rewards.py:reward`, or the papers' for None. A
    user's own is not asked of a failed rollout, which earns 0.

    Raises:
        UsageError: it is not there or not callable; when called, it raises or gives no number
            from 0 to 1.
    """
    if name is None:
        return outcome_reward
    own = load_outside(name) if is_outside(name) else None
    if not callable(own):
        raise UsageError(
            f"reward {name}: expected FILE.py:NAME of a callable (Sample, Trajectory) -> float"
        )

    def reward(sample: Sample, trajectory: Trajectory) -> float:
        if trajectory.failure is not None or trajectory.answer is None:
            return 0.0
        try:
            value = float(own(sample, trajectory))
        except Exception as error:  # whatever the user's code raises is theirs to mend
            raise UsageError(f"reward {name}: {type(error).__name__}: {error}") from error
        if not 0.0 <= value <= 1.0:
            raise UsageError(f"reward {name}: got {value} for {sample.id}, expected 0 to 1")
        return value

    return reward


def _verified(answer: Answer, prediction: str, golds: Sequence[str]) -> float:
    if extract_boxed(answer.reply) == prediction:
        return verify(answer.reply, golds)
    said = extract_answer(answer.reply[-REWARD_WINDOW:])
    return float(
        said is not None
        and latex_plain(said.lower()) in {latex_plain(gold.lower()) for gold in golds}
    )


def evidence_chunks(sample: Sample, tokenizer: Tokenizer, chunk_tokens: int) -> tuple[bool, ...]:
    """Whether each chunk of the context holds evidence (`core.evidence.Placed.chunk`). Reads the
    context as a stream."""
    placement = place(sample.problem.context, sample.evidence, tokenizer)
    held = {one.chunk(chunk_tokens) for one in placement.evidence}
    return tuple(index in held for index in range(placement.chunks(chunk_tokens)))


def in_format(trajectory: Trajectory, rule: FormatRule) -> bool:
    """Whether every memory turn of a rollout, and at least one, has GRU-Mem's format. `paper`: all
    four tags in order, the thought included. `gates`: the gates can be read, with or without a
    thought before them."""
    replies = [turn.reply for turn in trajectory.turns if turn.tag == "memory"]
    if rule == "paper":
        return bool(replies) and all(map(in_paper_format, replies))
    return bool(replies) and all(parse_gates(reply) is not None for reply in replies)


def gru_rewards(
    outcome: float, trajectory: Trajectory, evidence: Sequence[bool], rule: FormatRule = "paper"
) -> GruRewards:
    """GRU-Mem's rewards. `evidence`: see `evidence_chunks`, of the method's chunk size.

    Update: +1 if the turn says yes exactly when its chunk holds evidence, else -1, as for a
    reply that does not parse. Exit: 0 if the gate ends the reading at the last chunk with
    evidence, -0.75 if before, -0.5 if after or never (a failed rollout never exits). Format:
    1 if the rollout is in format by `rule`, else 0.

    Where no chunk holds evidence (tasks like cwe, files without marks) nobody knows what the
    gates should have done: update and exit rewards are 0 for every rollout of the group.

    Raises:
        ValueError: the rollout read more chunks than `evidence` has.
    """
    gates = _gates(trajectory, evidence)
    known = any(evidence)
    right = _right(gates, evidence)
    exit_rewards = {"early": EXIT_EARLY, "exact": 0.0, "late": EXIT_LATE, None: 0.0}
    return GruRewards(
        outcome=outcome,
        exit=exit_rewards[_exit_kind(gates, evidence)],
        format=float(in_format(trajectory, rule)),
        update=tuple((1.0 if one else -1.0) if known else 0.0 for one in right),
    )


def gate_record(
    trajectory: Trajectory, evidence: Sequence[bool], rule: FormatRule = "paper"
) -> GateRecord:
    """Counts for the curves of the paper's Figures 21 and 22. Raises as `gru_rewards` does."""
    gates = _gates(trajectory, evidence)
    known = any(evidence)
    right = _right(gates, evidence)
    present = [one for one, holds in zip(right, evidence, strict=False) if holds]
    free = [one for one, holds in zip(right, evidence, strict=False) if known and not holds]
    return GateRecord(
        exit_kind=_exit_kind(gates, evidence),
        exit_deviation=len(gates) - _chunks_needed(evidence) if known else None,
        present_turns=len(present),
        present_right=sum(present),
        free_turns=len(free),
        free_right=sum(free),
        in_format=in_format(trajectory, rule),
    )


def _gates(trajectory: Trajectory, evidence: Sequence[bool]) -> list[Gates | None]:
    """The gates of each memory turn, None where the reply does not parse."""
    gates = [parse_gates(turn.reply) for turn in trajectory.turns if turn.tag == "memory"]
    if len(gates) > len(evidence):
        raise ValueError(
            f"{len(gates)} memory turns, {len(evidence)} chunks; expected at most one turn a "
            "chunk: evidence_chunks must get the method's chunk_tokens"
        )
    return gates


def _right(gates: Sequence[Gates | None], evidence: Sequence[bool]) -> list[bool]:
    pairs = zip(gates, evidence, strict=False)
    return [gate is not None and gate.useful == holds for gate, holds in pairs]


def _chunks_needed(evidence: Sequence[bool]) -> int:
    """Chunks to read up to the last evidence, that one included."""
    return max(index for index, holds in enumerate(evidence, start=1) if holds)


def _exit_kind(gates: Sequence[Gates | None], evidence: Sequence[bool]) -> ExitKind | None:
    if not any(evidence):
        return None
    last = gates[-1] if gates else None
    if last is None or not last.done:
        return "late"  # it never said that it knows enough
    deviation = len(gates) - _chunks_needed(evidence)
    return "early" if deviation < 0 else "exact" if deviation == 0 else "late"
