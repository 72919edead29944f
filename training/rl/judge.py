"""From the rollouts of one question to conversations with advantages, and what to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from core.tokens import Tokenizer
from core.types import Sample, Trajectory, Turn
from training.rl.advantages import (
    answer_advantages,
    informative,
    mixed_advantages,
    overlong_penalty,
    trajectory_advantages,
    turn_advantages,
)
from training.rl.learner.protocol import Conversation
from training.rl.recipe import RlRecipe
from training.rl.rewards import (
    GateRecord,
    evidence_chunks,
    gate_record,
    gru_rewards,
    outcome_of,
)


@dataclass(frozen=True, slots=True)
class Group:
    """The judged rollouts of one question, [G] each. `rewards` are what advantages come from,
    `outcomes` the verifier's part of them, `parts` all their parts by name; `gates` is empty but
    for GRU-Mem. `informative`: there is something to learn from. `rewarded_apart`: so there is from
    the rewards of whole rollouts. `updates`: GRU-Mem's update rewards, a row a rollout."""

    sample: Sample
    trajectories: tuple[Trajectory, ...]
    rewards: tuple[float, ...]
    outcomes: tuple[float, ...]
    conversations: tuple[Conversation, ...]
    gates: tuple[GateRecord, ...]
    informative: bool
    rewarded_apart: bool
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    updates: tuple[tuple[float, ...], ...] = ()


def judge(
    sample: Sample, trajectories: Sequence[Trajectory], recipe: RlRecipe, tokenizer: Tokenizer
) -> Group:
    """Rewards, advantages and conversations of one group (PROTOCOL 4)."""
    outcome = outcome_of(recipe.reward)
    outcomes = [outcome(sample, one) for one in trajectories]
    if recipe.gated:
        return _judge_gated(sample, trajectories, outcomes, recipe, tokenizer)
    penalties_G = _penalties(trajectories, recipe)
    rewards_G = torch.tensor(outcomes) + penalties_G
    advantages_G = trajectory_advantages(rewards_G, normalize_std=recipe.normalize_std)
    conversations = [
        conversation(turn, float(advantage))
        for one, advantage in zip(trajectories, advantages_G, strict=True)
        for turn in one.turns
    ]
    return Group(
        sample=sample,
        trajectories=tuple(trajectories),
        rewards=tuple(rewards_G.tolist()),
        outcomes=tuple(outcomes),
        conversations=tuple(conversations),
        gates=(),
        informative=informative(rewards_G),
        rewarded_apart=informative(rewards_G),
        parts=_parts(recipe, penalties_G, outcome=outcomes),
    )


def _judge_gated(
    sample: Sample,
    trajectories: Sequence[Trajectory],
    outcomes: Sequence[float],
    recipe: RlRecipe,
    tokenizer: Tokenizer,
) -> Group:
    evidence = evidence_chunks(sample, tokenizer, recipe.chunk_tokens)
    earned = [
        gru_rewards(outcome, one, evidence, recipe.format)
        for outcome, one in zip(outcomes, trajectories, strict=True)
    ]
    penalties_G = _penalties(trajectories, recipe)
    rewards_G = torch.tensor([one.trajectory for one in earned]) + penalties_G
    longest = max(len(one.update) for one in earned)
    updates_GT = torch.zeros(len(earned), longest)
    reached_GT = torch.zeros(len(earned), longest, dtype=torch.bool)
    for row, one in enumerate(earned):
        updates_GT[row, : len(one.update)] = torch.tensor(one.update)
        reached_GT[row, : len(one.update)] = True
    whole_G = trajectory_advantages(rewards_G, normalize_std=recipe.normalize_std)
    turns_GT = turn_advantages(updates_GT, reached_GT)
    memory_GT = mixed_advantages(whole_G, turns_GT, reached_GT, recipe.alpha)
    answer_G = answer_advantages(whole_G, recipe.alpha)
    conversations = []
    for row, end in enumerate(trajectories):
        memories = [turn for turn in end.turns if turn.tag == "memory"]
        answers = [turn for turn in end.turns if turn.tag != "memory"]
        conversations += [
            conversation(turn, float(memory_GT[row, at])) for at, turn in enumerate(memories)
        ]
        conversations += [conversation(turn, float(answer_G[row])) for turn in answers]
    return Group(
        sample=sample,
        trajectories=tuple(trajectories),
        rewards=tuple(rewards_G.tolist()),
        outcomes=tuple(outcomes),
        conversations=tuple(conversations),
        gates=tuple(gate_record(one, evidence, recipe.format) for one in trajectories),
        informative=informative(rewards_G) or bool((turns_GT != 0).any()),
        rewarded_apart=informative(rewards_G),
        parts=_parts(
            recipe,
            penalties_G,
            outcome=outcomes,
            exit=[one.exit for one in earned],
            format=[one.format for one in earned],
        ),
        updates=tuple(one.update for one in earned),
    )


def said_again(groups: Sequence[Group], advantage: float) -> list[Group]:
    """Of groups that teach nothing those in which every rollout earned all there is, each reply
    with this advantage: to go on saying what is right. None where it is 0."""
    if not advantage:
        return []
    return [
        replace(
            group,
            conversations=tuple(
                replace(one, advantages=(advantage,) * len(one.reply))
                for one in group.conversations
            ),
        )
        for group in groups
        if not group.informative and min(group.outcomes) == 1.0
    ]


def _parts(
    recipe: RlRecipe, penalties_G: torch.Tensor, **parts: Sequence[float]
) -> dict[str, tuple[float, ...]]:
    """What the rewards are the sum of."""
    named = {name: tuple(values) for name, values in parts.items()}
    return named if recipe.overlong is None else named | {"overlong": tuple(penalties_G.tolist())}


def _penalties(trajectories: Sequence[Trajectory], recipe: RlRecipe) -> torch.Tensor:
    """DAPO's overlong shaping by the longest reply of each rollout, [G]; 0 where it is off."""
    if recipe.overlong is None:
        return torch.zeros(len(trajectories))
    limit, cache = recipe.overlong.limit, recipe.overlong.cache
    longest = [max((t.completion_tokens for t in one.turns), default=0) for one in trajectories]
    return torch.tensor([overlong_penalty(tokens, limit, cache) for tokens in longest])


def conversation(turn: Turn, advantage: float | tuple[float, ...]) -> Conversation:
    """A turn to learn from, with one advantage for all of its reply, or one a token."""
    if turn.prompt_ids is None or turn.reply_ids is None or turn.logprobs is None:
        raise ValueError("a turn without token ids and logprobs: not from a rollout engine")
    return Conversation(
        prompt=turn.prompt_ids,
        reply=turn.reply_ids,
        advantages=advantage
        if isinstance(advantage, tuple)
        else (advantage,) * len(turn.reply_ids),
        old_logprobs=turn.logprobs,
    )
