"""The answer's turn as an episode: many replies to one prompt that holds a question and a memory,
each rewarded by the verifier.

It starts where a rollout has read all: its last prompt. A prompt is short, so these cost little. A
memory without the facts teaches nothing, for all answers from it earn alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core.answers import answered
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Sample, Trajectory
from training.rl.advantages import answer_advantages, informative, trajectory_advantages
from training.rl.engines.engine import Generated
from training.rl.episodes.play import Ids, turn_of
from training.rl.judge import Group, conversation
from training.rl.recipe import RlRecipe
from training.rl.rewards import outcome_of


@dataclass(frozen=True, slots=True)
class Asked:
    """Where an episode starts: an answer turn's prompt, and the sample that it is of."""

    sample: Sample
    prompt: Ids


def drawn_questions(groups: Iterable[Group], count: int, rng: np.random.Generator) -> list[Asked]:
    """`count` different answer prompts of the groups' rollouts, fewer where there are no more."""
    different: dict[Ids, Asked] = {}
    for group in groups:
        for end in group.trajectories:
            last = end.turns[-1] if end.turns else None
            if last is not None and last.tag == "answer" and last.prompt_ids is not None:
                different.setdefault(last.prompt_ids, Asked(group.sample, last.prompt_ids))
    asked = list(different.values())
    return [asked[int(place)] for place in rng.permutation(len(asked))[:count]]


def judged_answers(
    asked: Asked,
    replies: Sequence[Generated],
    recipe: RlRecipe,
    form: AnswerForm,
    tokenizer: Tokenizer,
) -> Group:
    """The group of replies to an answer turn's prompt. `form`: how the prompt asks to mark the
    answer. For GRU-Mem the advantages are weighed by alpha, as in whole rollouts."""
    turns = [turn_of("answer", asked.prompt, reply, tokenizer) for reply in replies]
    ends = [
        Trajectory(asked.sample.id, (turn,), Answer(*answered(turn.reply, form)), None, 0.0)
        for turn in turns
    ]
    outcome = outcome_of(recipe.reward)
    outcomes = tuple(outcome(asked.sample, end) for end in ends)
    rewards_G = torch.tensor(outcomes)
    advantages_G = trajectory_advantages(rewards_G, normalize_std=recipe.normalize_std)
    if recipe.gated:
        advantages_G = answer_advantages(advantages_G, recipe.alpha)
    apart = informative(rewards_G)
    return Group(
        sample=asked.sample,
        trajectories=tuple(ends),
        rewards=outcomes,
        outcomes=outcomes,
        conversations=tuple(
            conversation(turn, float(advantage))
            for turn, advantage in zip(turns, advantages_G, strict=True)
        ),
        gates=(),
        informative=apart,
        rewarded_apart=apart,
        parts={"outcome": outcomes},
    )
