"""What a step of RL learns from: questions, their rollouts, and single turns of those, judged.

    training questions -> G rollouts each (the sweeps' own rollout()) -> judged groups
    scouts: more questions, one rollout each       -> turns of both -> replies -> judged groups

Dynamic sampling (DAPO) leaves out the groups that teach nothing, and draws others in their place.
Every draw comes from (recipe.seed, stream, step or question, rollout, turn).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.tokens import Tokenizer
from core.types import Json, Method, Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from training.rl.agent import answer_form
from training.rl.engines.engine import Job, RolloutEngine, run_freely, run_rollouts
from training.rl.episodes.answers import drawn_questions, judged_answers
from training.rl.episodes.memory_turns import (
    NotedTurn,
    drawn_states,
    judged_notes,
    note_metrics,
    noted_turns,
)
from training.rl.episodes.play import Judged, S, played
from training.rl.judge import Group, judge
from training.rl.metrics import Metrics, logged, rollout_metrics, tokens_of, turn_metrics
from training.rl.recipe import RlRecipe

TRAIN_STREAM, VALIDATION_STREAM, TURN_STREAM, SCOUT_STREAM, ANSWER_STREAM = 2, 3, 4, 5, 6
"""Apart from the warm start's streams (training/warmstart/batches.py)."""


@dataclass(frozen=True, slots=True)
class Collected:
    """`groups`: to learn from; `dropped`: those that teach nothing. `lines`: a few rollouts in
    full, to be written down."""

    groups: list[Group]
    dropped: list[Group]
    metrics: Metrics
    lines: list[dict[str, Json]]


@dataclass(frozen=True, slots=True)
class Collector:
    """Plays the agent in training against the engine, whose weights are the policy's."""

    recipe: RlRecipe
    engine: RolloutEngine
    method: Method
    corpora: Corpora

    def collect(self, step: int) -> Collected:
        """All that step `step` (from 0) learns from."""
        recipe = self.recipe
        groups, dropped = self._whole(step)
        lost = recipe.group_size * (len(groups) + len(dropped))
        lost -= sum(len(group.trajectories) for group in (*groups, *dropped))
        rollouts = [*groups, *dropped, *self._scouts(step)]
        turns = noted_turns(rollouts, recipe, self.tokenizer)
        metrics = rollout_metrics(rollouts)
        metrics |= {f"notes/{name}": value for name, value in note_metrics(turns).items()}
        lines = list(logged(rollouts, step + 1, recipe.log_rollouts))
        if recipe.episodes is not None:
            for name, (more, alike) in self._turns(step, rollouts, turns).items():
                metrics |= turn_metrics([*more, *alike], name)
                metrics["rollout_tokens"] += tokens_of([*more, *alike])
                lines += logged([*more, *alike], step + 1, recipe.log_rollouts)
                groups, dropped = [*groups, *more], [*dropped, *alike]
        minor = sum(not group.rewarded_apart for group in groups)
        metrics |= {"groups": len(groups), "dropped_groups": len(dropped), "minor_groups": minor}
        return Collected(groups, dropped, metrics | {"lost_rollouts": lost}, lines)

    def play(self, jobs: Sequence[Job], sampling: Sampling) -> list[Trajectory]:
        """The jobs' rollouts, in order."""
        run = run_freely if self.recipe.rollouts == "free" else run_rollouts
        return asyncio.run(run(self.engine, jobs, sampling))

    def sample(self, task: str, length: int, stream: int, index: int) -> Sample:
        """A question of a stream, by its number."""
        # A seed of its own for each stream, far from the small ones that suites use.
        seed = (self.recipe.seed << 20) + stream
        return find_task(task).sample(
            Coordinates(index, length, seed), Materials(self.tokenizer, self.corpora)
        )

    def _whole(self, step: int) -> tuple[list[Group], list[Group]]:
        """Groups of whole rollouts to learn from, and those that dynamic sampling dropped.

        It asks further questions in place of groups whose rollouts were all
        rewarded alike, until there are enough or `max_refills` times at most: as many at once as
        should do, by the share that did so far. Groups that only GRU-Mem's update rewards tell
        apart are learned from, but fill no place: at 1 - alpha their signal is small.
        """
        recipe, wanted, rounds = self.recipe, self.recipe.whole_groups, self._rounds
        full: list[Group] = []
        minor: list[Group] = []
        dropped: list[Group] = []
        first = step * recipe.groups * rounds
        count = wanted
        for _ in range(rounds if wanted else 0):
            for group in self._groups(range(first, first + count), recipe.sampling_at(step)):
                good = not recipe.dynamic_sampling or group.rewarded_apart
                (full if good else minor if group.informative else dropped).append(group)
            first += count
            missing = wanted - len(full)
            if missing <= 0:
                break
            seen = len(full) + len(minor) + len(dropped)
            count = min(wanted, math.ceil(missing * seen / max(len(full), seen / 4)))
        dropped += full[wanted:]
        return full[:wanted] + minor[:wanted], dropped

    def _groups(self, questions: range, sampling: Sampling) -> list[Group]:
        """Rollouts of the training questions of these numbers, judged."""
        recipe, size = self.recipe, self.recipe.group_size
        samples = [self._question(number, TRAIN_STREAM) for number in questions]
        jobs = [
            Job(sample, self.method, (recipe.seed, TRAIN_STREAM, number, again))
            for number, sample in zip(questions, samples, strict=True)
            for again in range(size)
        ]
        ends = self.play(jobs, sampling)
        return [
            judge(sample, comparable(ends[at * size : (at + 1) * size]), recipe, self.tokenizer)
            for at, sample in enumerate(samples)
        ]

    def _scouts(self, step: int) -> list[Group]:
        """One rollout of each of some more questions, for the turns that episodes start from."""
        setting, recipe = self.recipe.episodes, self.recipe
        if setting is None or not setting.scouts:
            return []
        numbers = range(step * setting.scouts, (step + 1) * setting.scouts)
        samples = [self._question(number, SCOUT_STREAM) for number in numbers]
        jobs = [
            Job(sample, self.method, (recipe.seed, SCOUT_STREAM, number))
            for number, sample in zip(numbers, samples, strict=True)
        ]
        ends = self.play(jobs, recipe.sampling_at(step))
        pairs = zip(samples, ends, strict=True)
        return [judge(sample, [end], recipe, self.tokenizer) for sample, end in pairs]

    def _turns(
        self, step: int, rollouts: Sequence[Group], turns: Sequence[NotedTurn]
    ) -> dict[str, tuple[list[Group], list[Group]]]:
        """Single turns of these rollouts as episodes, their memory turns and answers: of each kind
        the groups to learn from, and those whose replies were all rewarded alike."""
        recipe, tokenizer, setting = self.recipe, self.tokenizer, self.recipe.episodes
        assert setting is not None
        answers = recipe.answer_groups
        wanted = recipe.groups - recipe.whole_groups - answers
        rng = np.random.default_rng([recipe.seed, TURN_STREAM, step])
        states = drawn_states(turns, wanted * self._rounds, setting, rng)
        found = {
            "episode": self._episodes(
                states, wanted, step, TURN_STREAM,
                lambda state, replies: judged_notes(state, replies, recipe, tokenizer),
            )
        }  # fmt: skip
        if answers:
            form = answer_form(recipe)
            asked = drawn_questions(rollouts, answers * self._rounds, rng)
            found["answer"] = self._episodes(
                asked, answers, step, ANSWER_STREAM,
                lambda one, replies: judged_answers(one, replies, recipe, form, tokenizer),
            )  # fmt: skip
        return found

    def _episodes(
        self, starts: Sequence[S], wanted: int, step: int, stream: int, judged: Judged[S]
    ) -> tuple[list[Group], list[Group]]:
        """`wanted` groups from these starts, in order, and those that dynamic sampling dropped. As
        often as rollouts are refilled, as far as there are starts."""
        recipe = self.recipe
        kept: list[Group] = []
        dropped: list[Group] = []
        for again in range(self._rounds):
            missing = wanted - len(kept)
            part, starts = starts[:missing], starts[missing:]
            seed = (recipe.seed, stream, step, again)
            sampling = recipe.sampling_at(step)
            for group in played(part, self.engine, sampling, recipe, seed, judged):
                good = group.informative or not recipe.dynamic_sampling
                (kept if good else dropped).append(group)
            if len(kept) == wanted or not starts:
                break
        return kept, dropped

    @property
    def _rounds(self) -> int:
        """How often groups are drawn for a step, at most."""
        return 1 + (self.recipe.max_refills if self.recipe.dynamic_sampling else 0)

    def _question(self, number: int, stream: int) -> Sample:
        """Training question `number` of a stream: a task and a length of the mix, drawn from
        both."""
        rng = np.random.default_rng([self.recipe.seed, stream, number])
        mixes = self.recipe.tasks
        shares = np.array([mix.weight for mix in mixes])
        mix = mixes[int(rng.choice(len(mixes), p=shares / shares.sum()))]
        length = mix.lengths[int(rng.integers(len(mix.lengths)))]
        return self.sample(mix.name, length, stream, number)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer


LOST = frozenset({"request_failed", "timeout", "rejected", "bad_reply"})
"""Failures that say nothing of the policy."""


def comparable(ends: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """The rollouts of a question without those that were lost on the way to the engine: nobody is
    to learn from them. All of them, where fewer than two are left to compare."""
    kept = [end for end in ends if end.failure is None or end.failure.kind not in LOST]
    return kept if len(kept) > 1 else ends
