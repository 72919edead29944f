"""The RL loop: rollouts, rewards, an update, the new weights into the engine; again.

    questions of step s -> G rollouts each (the sweeps' own rollout()) -> judge -> learner.update
        -> engine.load_weights -> metrics.jsonl

Every draw comes from (recipe.seed, stream, step, question, rollout, turn), so a step depends on
the weights and its number alone: a run killed anywhere goes on from its last saved state and
ends with the weights of an unbroken one (on the same machine).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from core.tokens import Tokenizer
from core.types import GREEDY, Method, Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import Scorer, gathered, primary_metric, scored
from tasks.task import Coordinates, Materials
from training.rl.agent import answer_form
from training.rl.answers import drawn_questions, judged_answers
from training.rl.engines.engine import Job, RolloutEngine, run_freely, run_rollouts
from training.rl.episodes import (
    Judged,
    NotedTurn,
    S,
    drawn_states,
    judged_notes,
    note_metrics,
    noted_turns,
    played,
)
from training.rl.judge import Group, judge, said_again
from training.rl.learner.protocol import RolloutLearner
from training.rl.learner.states import Best, read_best, write_best
from training.rl.metrics import ROLLOUTS_FILE, Metrics, logged, rollout_metrics, turn_metrics
from training.rl.recipe import RlRecipe
from training.state import OnStep, append_line, drop_lines_after

METRICS_FILE = "metrics.jsonl"
TRAIN_STREAM, VALIDATION_STREAM, TURN_STREAM, SCOUT_STREAM, ANSWER_STREAM = 2, 3, 4, 5, 6
"""Apart from the warm start's streams (training/warmstart/batches.py)."""


@dataclass(slots=True)
class BestScore:
    """Of the run's validations so far, that before the first step included."""

    score: float | None = None


@dataclass(frozen=True, slots=True)
class Trainer:
    """All that a run needs. `method` is the agent in training. `writes`: whether this process is
    the one that writes and tells, of those that train together."""

    recipe: RlRecipe
    learner: RolloutLearner
    engine: RolloutEngine
    method: Method
    corpora: Corpora
    writes: bool = True
    best: BestScore = field(default_factory=BestScore)

    def run(self, out: Path, *, on_step: OnStep | None = None) -> None:
        """Train to the recipe's last step, going on from a state in `out`.

        The folder must be claimed already (training.state.claim). Validates before the first
        step, every `validation.every` steps and at the end. `on_step` hears of every step.
        """
        recipe, learner = self.recipe, self.learner
        step = learner.load(out)
        if self.writes:
            # Before the first saved step there is nothing to keep: step 0 is validated again.
            drop_lines_after(out / METRICS_FILE, step or -1)
            drop_lines_after(out / ROLLOUTS_FILE, step)
        self.engine.load_weights(learner.weights())
        known = read_best(out)
        self.best.score = None if known is None else known.score
        if step == 0:
            metrics = self.validate()
            self.tell(out, 0, metrics, on_step)
            if self._is_best(metrics):
                self._note_best(out, 0)
        while step < recipe.steps:
            metrics = self.step(step, out)
            step += 1
            last = step == recipe.steps
            if last or step % recipe.validation.every == 0:
                metrics |= self.validate()
            # The line first: one too many is dropped on resume, one too few is never written.
            self.tell(out, step, metrics, on_step)
            best = self._is_best(metrics)
            if last or best or step % recipe.save_every == 0:
                learner.save(out, step)
            if best:
                self._note_best(out, step)

    def _is_best(self, metrics: Metrics) -> bool:
        """Whether there is a validation, and the best so far: the same on all ranks."""
        score = metrics.get("validation/strict")
        if score is None or (self.best.score is not None and score <= self.best.score):
            return False
        self.best.score = score
        return True

    def _note_best(self, out: Path, step: int) -> None:
        """Once its state is there: from then on it stays."""
        if self.writes and self.best.score is not None:
            write_best(out, Best(step, self.best.score))

    def tell(self, out: Path, step: int, metrics: Metrics, on_step: OnStep | None) -> None:
        """Write a step's metrics down and tell `on_step`."""
        if not self.writes:
            return
        finite = {k: v if math.isfinite(v) else None for k, v in metrics.items()}
        append_line(out / METRICS_FILE, {"step": step, **finite})
        if on_step is not None:
            on_step(step, metrics)

    def step(self, step: int, out: Path | None = None) -> Metrics:
        """One step (from 0): its rollouts, of which a few are written down in `out`, and its
        update."""
        started = time.monotonic()
        groups, dropped = self._collect(step)
        lost = self.recipe.group_size * (len(groups) + len(dropped))
        lost -= sum(len(group.trajectories) for group in (*groups, *dropped))
        rollouts = [*groups, *dropped, *self._scouts(step)]
        turns = noted_turns(rollouts, self.recipe, self.tokenizer)
        metrics = rollout_metrics(rollouts) | note_metrics(turns, "notes")
        lines = list(logged(rollouts, step + 1, self.recipe.log_rollouts))
        if self.recipe.episodes is not None:
            for name, (more, alike) in self._collect_turns(step, rollouts, turns).items():
                metrics |= turn_metrics([*more, *alike], name)
                lines += logged([*more, *alike], step + 1, self.recipe.log_rollouts)
                groups, dropped = [*groups, *more], [*dropped, *alike]
        seconds = time.monotonic() - started
        if self.writes and out is not None:
            for line in lines:
                append_line(out / ROLLOUTS_FILE, line)
        minor = sum(not group.rewarded_apart for group in groups)
        metrics |= {"groups": len(groups), "dropped_groups": len(dropped), "minor_groups": minor}
        metrics |= {"lost_rollouts": lost, "rollout_seconds": seconds}
        self.engine.sleep()
        again = said_again(dropped, self.recipe.imitation)
        learned = [group.conversations for group in (*groups, *again)]
        metrics |= self.learner.update(learned, step)
        self.engine.load_weights(self.learner.weights())
        return metrics

    def validate(self) -> Metrics:
        """Accuracy on questions never trained on, at the validation's own sampling, and greedily
        where the recipe asks for it."""
        setting = self.recipe.validation
        asked = [
            (find_task(mix.name).scorer, self._sample(mix.name, length, VALIDATION_STREAM, index))
            for mix in setting.tasks
            for length in mix.lengths
            for index in range(setting.samples)
        ]
        sampling = Sampling(temperature=setting.temperature, top_p=setting.top_p)
        metrics = self._accuracy(asked, sampling, setting.samples_per_question, "validation")
        if setting.greedy:
            metrics |= self._accuracy(asked, GREEDY, 1, "validation/greedy")
        return metrics

    def _accuracy(
        self,
        asked: Sequence[tuple[Scorer, Sample]],
        sampling: Sampling,
        times: int,
        name: str,
    ) -> Metrics:
        """Strict and lenient accuracy over all and by task, each question asked so often."""
        jobs = [
            Job(sample, self.method, (self.recipe.seed, VALIDATION_STREAM, number, again))
            for number, (_, sample) in enumerate(asked)
            for again in range(times)
        ]
        ends = self._play(jobs, sampling)
        scorers = [scorer for scorer, _ in asked for _ in range(times)]
        scored_so = zip(scorers, jobs, ends, strict=True)
        every = asyncio.run(gathered(_accuracies, scored_so))
        by_task: dict[str, list[tuple[float, float]]] = {}
        for job, pair in zip(jobs, every, strict=True):
            by_task.setdefault(job.sample.task, []).append(pair)
        metrics: Metrics = {}
        for task, pairs in by_task.items():
            metrics[f"{name}/strict/{task}"] = fmean(strict for strict, _ in pairs)
            metrics[f"{name}/lenient/{task}"] = fmean(lenient for _, lenient in pairs)
        metrics[f"{name}/strict"] = fmean(strict for strict, _ in every)
        metrics[f"{name}/lenient"] = fmean(lenient for _, lenient in every)
        return metrics

    def _collect(self, step: int) -> tuple[list[Group], list[Group]]:
        """The step's groups to learn from, and those that dynamic sampling dropped.

        Dynamic sampling (DAPO) asks further questions in place of groups whose rollouts were all
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
        ends = self._play(jobs, recipe.sampling_at(step))
        pairs = zip(samples, ends, strict=True)
        return [judge(sample, [end], recipe, self.tokenizer) for sample, end in pairs]

    def _collect_turns(
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

    def _groups(self, questions: range, sampling: Sampling) -> list[Group]:
        """Rollouts of the training questions of these numbers, judged."""
        recipe, size = self.recipe, self.recipe.group_size
        samples = [self._question(number, TRAIN_STREAM) for number in questions]
        jobs = [
            Job(sample, self.method, (recipe.seed, TRAIN_STREAM, number, again))
            for number, sample in zip(questions, samples, strict=True)
            for again in range(size)
        ]
        ends = self._play(jobs, sampling)
        return [
            judge(sample, comparable(ends[at * size : (at + 1) * size]), recipe, self.tokenizer)
            for at, sample in enumerate(samples)
        ]

    def _play(self, jobs: Sequence[Job], sampling: Sampling) -> list[Trajectory]:
        run = run_freely if self.recipe.rollouts == "free" else run_rollouts
        return asyncio.run(run(self.engine, jobs, sampling))

    def _question(self, number: int, stream: int) -> Sample:
        """Training question `number` of a stream: a task and a length of the mix, drawn from
        both."""
        rng = np.random.default_rng([self.recipe.seed, stream, number])
        mixes = self.recipe.tasks
        shares = np.array([mix.weight for mix in mixes])
        mix = mixes[int(rng.choice(len(mixes), p=shares / shares.sum()))]
        length = mix.lengths[int(rng.integers(len(mix.lengths)))]
        return self._sample(mix.name, length, stream, number)

    def _sample(self, task: str, length: int, stream: int, index: int) -> Sample:
        # A seed of its own for each stream, far from the small ones that suites use.
        seed = (self.recipe.seed << 20) + stream
        return find_task(task).sample(
            Coordinates(index, length, seed), Materials(self.tokenizer, self.corpora)
        )

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


async def _accuracies(asked: tuple[Scorer, Job, Trajectory]) -> tuple[float, float]:
    """Strict and lenient (published) score of an answer, 0..1; a failure scores 0 on both."""
    scorer, job, end = asked
    if end.answer is None:
        return 0.0, 0.0
    scores, metric = await scored(scorer, end.answer, job.sample), primary_metric(scorer)
    return scores["strict"][metric], scores["published"][metric]
