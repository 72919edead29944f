"""From rollouts to conversations: each turn gets the advantage that PROTOCOL 4 gives it."""

from __future__ import annotations

import pytest

from core.context import Context
from core.types import Answer, Evidence, Problem, Sample, Trajectory, Turn
from tests.core.tokenizers import trained
from training.rl.judge import judge, said_again
from training.rl.recipe import Overlong, RlRecipe, load_rl_recipe

TOKENIZER = trained("a token for each z")
GOLD = "4711"
GATES = {"method": "gru_mem", "format": "gates", "alpha": 0.9}
TEXT = "some words about nothing. " * 6


def recipe(preset: str, **fields: object) -> RlRecipe:
    return load_rl_recipe(preset).model_copy(update=fields)


def sample() -> Sample:
    """Evidence in the first piece of two."""
    context = Context([f"the number is {GOLD}. ", TEXT], "")
    where = Evidence(0, 0, len(f"the number is {GOLD}."))
    return Sample("id", "task", 0, Problem(context, "q"), (GOLD,), "all", (where,))


def turn(reply: str, tag: str, ids: tuple[int, ...]) -> Turn:
    logprobs = (-0.5,) * len(ids)
    trained = {"prompt_ids": (1, 2), "reply_ids": ids, "logprobs": logprobs}
    return Turn(tag, (), reply, "stop", 2, len(ids), 0.0, **trained)


def rollout(answer: str, *memories: str) -> Trajectory:
    turns = [turn(memory, "memory", (7, 8, 9)) for memory in memories]
    turns.append(turn(answer, "answer", (5,)))
    return Trajectory("id", tuple(turns), Answer(answer, answer), None, 0.0)


def test_every_turn_of_a_rollout_gets_its_outcome_minus_the_groups_mean() -> None:
    ends = [rollout(GOLD, "a", "b"), rollout("no", "a"), rollout("no", "a"), rollout("no", "a")]
    group = judge(sample(), ends, recipe("pocket"), TOKENIZER)
    assert group.outcomes == group.rewards == (1.0, 0.0, 0.0, 0.0)
    assert group.informative
    told = [one.advantages for one in group.conversations]
    right, wrong = 0.75, -0.25
    assert told[:3] == [(right,) * 3, (right,) * 3, (right,)]
    assert told[3:] == [(wrong,) * 3, (wrong,)] * 3
    assert {one.old_logprobs for one in group.conversations} == {(-0.5,) * 3, (-0.5,)}


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    group = judge(sample(), [rollout("no", "a")] * 3, recipe("pocket"), TOKENIZER)
    assert not group.informative
    assert {a for one in group.conversations for a in one.advantages} == {0.0}


def test_overlong_replies_lower_the_reward_not_the_outcome() -> None:
    shaped = recipe("pocket", overlong=Overlong(limit=4, cache=2))
    group = judge(sample(), [rollout(GOLD, "a"), rollout("no")], shaped, TOKENIZER)
    assert group.outcomes == (1.0, 0.0)
    assert group.rewards == (0.5, 0.0)  # the longest reply has 3 tokens: half of the cache


def test_gates_mix_the_trajectorys_part_with_the_turns_own() -> None:
    """One rollout checks both chunks rightly and stops late, one says no to the evidence."""
    tokenizer = TOKENIZER
    size = max(2, len(tokenizer.encode(sample().problem.context.text())) // 2)

    def gates(check: str, following: str) -> str:
        return f"<check>{check}</check><update>m</update><next>{following}</next>"

    ends = [
        rollout(GOLD, gates("yes", "continue"), gates("no", "end")),
        rollout("no", gates("no", "continue"), gates("no", "end")),
    ]
    mine = recipe("pocket", chunk_tokens=size, **GATES)
    group = judge(sample(), ends, mine, tokenizer)
    assert len(group.gates) == 2
    # Both exit one chunk late (-0.5) in the right form (+1): rewards 1.5 and 0.5, mean 1.
    assert group.rewards == (1.5, 0.5)
    told = [one.advantages[0] for one in group.conversations]
    # First turn: +1 against -1; second turn: both right; answers: the trajectory's part alone.
    expected = [0.9 * 0.5 + 0.1 * 1, 0.45, 0.45, -0.45 - 0.1, -0.45, -0.45]
    assert told == pytest.approx(expected)


def test_update_rewards_alone_teach_but_set_no_group_apart() -> None:
    size = max(2, len(TOKENIZER.encode(sample().problem.context.text())) // 2)
    ends = [
        rollout("no", f"<check>{check}</check><update>m</update><next>continue</next>")
        for check in ("yes", "no")
    ]
    group = judge(sample(), ends, recipe("pocket", chunk_tokens=size, **GATES), TOKENIZER)
    assert group.informative
    assert not group.rewarded_apart
    assert group.updates == ((1.0,), (-1.0,))
    assert dict(group.parts) == {"outcome": (0.0, 0.0), "exit": (-0.5, -0.5), "format": (1.0, 1.0)}


def test_what_is_right_throughout_can_be_said_again() -> None:
    mine = recipe("pocket")
    right = judge(sample(), [rollout(GOLD, "a")] * 2, mine, TOKENIZER)
    wrong = judge(sample(), [rollout("no", "a")] * 2, mine, TOKENIZER)
    mixed = judge(sample(), [rollout(GOLD, "a"), rollout("no", "a")], mine, TOKENIZER)
    assert said_again([right, wrong, mixed], 0.0) == []
    (again,) = said_again([right, wrong, mixed], 0.1)
    assert {a for one in again.conversations for a in one.advantages} == {0.1}


def test_turns_without_ids_are_refused() -> None:
    plain = Turn("answer", (), GOLD, "stop", 1, 1, 0.0)
    end = Trajectory("id", (plain,), Answer(GOLD, GOLD), None, 0.0)
    with pytest.raises(ValueError, match="token ids"):
        judge(sample(), [end, end], recipe("pocket"), TOKENIZER)
