"""Rewards against numbers worked out by hand, and the chunks that evidence is assigned to."""

from __future__ import annotations

import pytest

from core.context import Context
from core.errors import UsageError
from core.types import Answer, Evidence, Failure, Match, Problem, Sample, Trajectory, Turn
from tests.core.tokenizers import trained
from training.rl.rewards import (
    GateRecord,
    GruRewards,
    evidence_chunks,
    gate_record,
    gru_rewards,
    in_format,
    outcome_reward,
)


def sample(
    golds: tuple[str, ...], match: Match, context: Context, *evidence: Evidence
) -> Sample:  # fmt: skip
    return Sample("id", "task", 0, Problem(context, "q"), golds, match, evidence)


def asked(golds: tuple[str, ...], match: Match) -> Sample:
    return sample(golds, match, Context(["c"]))


def turn(reply: str, tag: str = "memory") -> Turn:
    return Turn(tag, (), reply, "stop", 1, 1, 0.0)


def answered(reply: str, prediction: str | None, *memory: str) -> Trajectory:
    turns = (*map(turn, memory), turn(reply, "answer"))
    return Trajectory("id", turns, Answer(reply, prediction), None, 0.0)


def gates(check: str, following: str = "continue") -> str:
    return f"<think>t</think><check>{check}</check><update>m</update><next>{following}</next>"


BOXED = r"So \boxed{New York}."
THEREFORE = "Therefore, the answer is New York."


@pytest.mark.parametrize(
    ("reply", "prediction", "golds", "reward"),
    [
        (BOXED, "New York", ("new york",), 1.0),
        (BOXED, "New York", ("Boston", "NewYork"), 1.0),
        (BOXED, "New York", ("York",), 0.0),
        (THEREFORE, "New York", ("new york",), 1.0),
        (THEREFORE, "New York", ("Boston", "New\\, York"), 1.0),
        (THEREFORE, "New York", ("York",), 0.0),
        ("New York", None, ("New York",), 0.0),
        # The mark must stand within the last 300 characters.
        (BOXED + "." * 300, "New York", ("New York",), 0.0),
        (THEREFORE + " " * 300, "New York", ("New York",), 0.0),
    ],
)
def test_one_answer_must_equal_a_gold(
    reply: str, prediction: str | None, golds: tuple[str, ...], reward: float
) -> None:
    assert outcome_reward(asked(golds, "any"), answered(reply, prediction)) == reward


@pytest.mark.parametrize(
    ("said", "reward"),
    [("k is: 11. k is: 22.", 0.5), ("44, 33, 22 and 11", 1.0), ("5", 0.0), ("AB 11", 0.25)],
)
def test_all_of_them_earns_the_share_found_in_the_prediction(said: str, reward: float) -> None:
    trajectory = answered(f"11 22 33 44. Therefore, the answer is {said}", said)
    assert outcome_reward(asked(("11", "22", "33", "44"), "all"), trajectory) == reward


def test_a_gold_of_letters_is_found_in_any_case() -> None:
    assert outcome_reward(asked(("ABC", "DEF"), "all"), answered("", "abc, dEf")) == 1.0


def test_a_failure_earns_nothing() -> None:
    failed = Trajectory("id", (), None, Failure("timeout", "late"), 0.0)
    assert outcome_reward(asked(("a",), "any"), failed) == 0.0
    assert outcome_reward(asked(("a",), "all"), failed) == 0.0
    assert outcome_reward(asked(("a",), "all"), answered("a", None)) == 0.0


def test_summaries_have_no_reward() -> None:
    with pytest.raises(UsageError, match="no training reward"):
        outcome_reward(asked(("a",), "summary"), answered("a", "a"))


RIGHT = r"\boxed{a}"
EVIDENCE = (False, True, False, True, False)
READ = (gates("no"), gates("yes"), gates("no"))


def rewarded(*memory: str, evidence: tuple[bool, ...] = EVIDENCE) -> GruRewards:
    return gru_rewards(1.0, answered(RIGHT, "a", *memory), evidence)


def test_exit_at_the_last_evidence_costs_nothing() -> None:
    got = rewarded(*READ, gates("yes", "end"))
    assert got == GruRewards(1.0, 0.0, 1.0, (1.0, 1.0, 1.0, 1.0))
    assert got.trajectory == 2.0


def test_exit_before_the_last_evidence_costs_more_than_after_it() -> None:
    early = rewarded(gates("yes"), gates("yes", "end"))
    assert early == GruRewards(1.0, -0.75, 1.0, (-1.0, 1.0))
    late = rewarded(*READ, gates("yes"), gates("no", "end"))
    assert late == GruRewards(1.0, -0.5, 1.0, (1.0,) * 5)
    assert (early.trajectory, late.trajectory) == (1.25, 1.5)


@pytest.mark.parametrize("evidence", [EVIDENCE, (False, True, False, True, True)])
def test_never_exiting_is_late_even_if_the_last_chunk_holds_evidence(
    evidence: tuple[bool, ...],
) -> None:
    assert rewarded(*READ, gates("yes"), gates("no"), evidence=evidence).exit == -0.5


def test_one_reply_that_does_not_parse_costs_the_format_and_its_turn() -> None:
    got = rewarded(*READ[:2], "<check>no</check>", gates("yes", "end"))
    assert got == GruRewards(1.0, 0.0, 0.0, (1.0, 1.0, -1.0, 1.0))


THOUGHT, CHECK, KEPT, ON = (
    "<think>t</think>", "<check>yes</check>", "<update>m</update>", "<next>continue</next>"
)  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "paper", "lenient"),
    [
        (THOUGHT + CHECK + KEPT + ON, True, True),
        (f"\n{THOUGHT}\n{CHECK} {KEPT}\n\n{ON}\n", True, True),
        ("<think>a\nb < c</think><check> no </check><update></update><next>end</next>", True, True),
        (CHECK + KEPT + ON, False, True),
        ("t</think>" + CHECK + KEPT + ON, False, True),
        ("I say " + THOUGHT + CHECK + KEPT + ON, False, True),
        (THOUGHT + THOUGHT + CHECK + KEPT + ON, False, True),
        (THOUGHT + CHECK + "<update>m<next>end</next></update>" + ON, False, False),
        (f"<think>{CHECK}</think>{CHECK}{KEPT}{ON}", False, True),
        (THOUGHT + KEPT + CHECK + ON, False, False),
        (THOUGHT + CHECK + KEPT, False, False),
        (THOUGHT + "<check>perhaps</check>" + KEPT + ON, False, False),
        (THOUGHT + CHECK + KEPT + "<next>stop</next>", False, False),
        (THOUGHT + CHECK + KEPT + ON + "Done.", False, False),
    ],
)
def test_the_papers_format_wants_all_four_tags_in_order(
    reply: str, paper: bool, lenient: bool
) -> None:
    good = gates("yes")
    for turns in ((reply,), (good, reply), (reply, good)):
        end = answered(RIGHT, "a", *turns)
        assert in_format(end, "paper") == paper
        assert in_format(end, "gates") == lenient
        assert gru_rewards(1.0, end, EVIDENCE).format == paper


def test_without_known_evidence_only_outcome_and_format_count() -> None:
    got = rewarded(gates("yes"), gates("no", "end"), evidence=(False,) * 3)
    assert got == GruRewards(1.0, 0.0, 1.0, (0.0, 0.0))
    record = gate_record(answered(RIGHT, "a", gates("yes"), "?"), (False,) * 3)
    assert record == GateRecord(None, None, 0, 0, 0, 0, in_format=False)


def test_a_failure_before_the_first_turn_is_late_and_without_format() -> None:
    failed = Trajectory("id", (), None, Failure("timeout", "late"), 0.0)
    assert gru_rewards(0.0, failed, EVIDENCE) == GruRewards(0.0, -0.5, 0.0, ())


@pytest.mark.parametrize(
    ("memory", "record"),
    [
        ((*READ, gates("yes", "end")), GateRecord("exact", 0, 2, 2, 2, 2, True)),
        ((gates("yes"), gates("no", "end")), GateRecord("early", -2, 1, 0, 1, 0, True)),
        ((*READ, "?", gates("no", "end")), GateRecord("late", 1, 2, 1, 3, 3, False)),
        ((*READ, gates("yes"), gates("no")), GateRecord("late", 1, 2, 2, 3, 3, True)),
    ],
)
def test_the_record_counts_gates_by_what_the_chunk_holds(
    memory: tuple[str, ...], record: GateRecord
) -> None:
    assert gate_record(answered(RIGHT, "a", *memory), EVIDENCE) == record


def test_more_turns_than_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="2 memory turns, 1 chunks"):
        rewarded(gates("no"), gates("no"), evidence=(True,))


TOKENIZER = trained("a token for each z")


def test_evidence_belongs_to_the_chunk_with_most_of_it() -> None:
    context = Context(["z" * 10, "z" * 10], "")
    assert context.count(TOKENIZER) == 20

    def chunks(*spans: tuple[int, int, int]) -> tuple[bool, ...]:
        evidence = [Evidence(*span) for span in spans]
        return evidence_chunks(sample(("a",), "any", context, *evidence), TOKENIZER, 6)

    assert chunks() == (False, False, False, False)
    assert chunks((0, 0, 6)) == (True, False, False, False)
    assert chunks((0, 3, 8)) == (True, False, False, False)  # 3 tokens of 5
    assert chunks((0, 4, 9)) == (False, True, False, False)  # 2 tokens of 5
    assert chunks((0, 4, 8)) == (True, False, False, False)  # 2 of 4: the earlier
    assert chunks((0, 9, 10), (1, 9, 10)) == (False, True, False, True)


def test_outer_white_space_moves_no_evidence() -> None:
    context = Context(["   \n", "  zzzzzzzz"], "\n")
    one = sample(("a",), "any", context, Evidence(1, 6, 8))  # z number 5 and 6
    assert evidence_chunks(one, TOKENIZER, 4) == (False, True)
