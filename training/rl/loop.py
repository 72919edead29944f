"""The RL loop: rollouts, rewards, an update, the new weights into the engine; again.

    collect: rollouts of step s, judged -> learner.update -> engine.load_weights -> metrics.jsonl

A step depends on the weights and its number alone: a run killed anywhere goes on from its last
saved state and ends with the weights of an unbroken one (on the same machine).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from core.types import GREEDY, Method, Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import Scorer, gathered, primary_metric, scored
from training.rl.collect import VALIDATION_STREAM, Collector
from training.rl.engines.engine import Job, RolloutEngine
from training.rl.judge import said_again
from training.rl.learner.protocol import RolloutLearner
from training.rl.learner.states import Best, read_best, write_best
from training.rl.metrics import ROLLOUTS_FILE, Metrics
from training.rl.recipe import RlRecipe
from training.state import OnStep, append_line, drop_lines_after

METRICS_FILE = "metrics.jsonl"


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
        found = self.collector.collect(step)
        metrics = found.metrics | {"rollout_seconds": time.monotonic() - started}
        if self.writes and out is not None:
            for line in found.lines:
                append_line(out / ROLLOUTS_FILE, line)
        self.engine.sleep()
        again = said_again(found.dropped, self.recipe.imitation)
        learned = [group.conversations for group in (*found.groups, *again)]
        metrics |= self.learner.update(learned, step)
        self.engine.load_weights(self.learner.weights())
        return metrics

    def validate(self) -> Metrics:
        """Accuracy on questions never trained on, at the validation's own sampling, and greedily
        where the recipe asks for it."""
        setting = self.recipe.validation
        asked = [
            (
                find_task(mix.name).scorer,
                self.collector.sample(mix.name, length, VALIDATION_STREAM, index),
            )
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
        ends = self.collector.play(jobs, sampling)
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

    @property
    def collector(self) -> Collector:
        return Collector(self.recipe, self.engine, self.method, self.corpora)


async def _accuracies(asked: tuple[Scorer, Job, Trajectory]) -> tuple[float, float]:
    """Strict and lenient (published) score of an answer, 0..1; a failure scores 0 on both."""
    scorer, job, end = asked
    if end.answer is None:
        return 0.0, 0.0
    scores, metric = await scored(scorer, end.answer, job.sample), primary_metric(scorer)
    return scores["strict"][metric], scores["published"][metric]
