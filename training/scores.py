"""Measures a checkpoint on the tasks themselves, through the methods themselves.

In this process (training/rl/engines/torch_engine.py): the tasks' own samples, the methods' own
workflow, the strict profile's score. The samples' seeds are hashed with the task's
name (tasks/task.py) and share nothing with the trainer's streams (training/warmstart/batches.py).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import Qwen2ForCausalLM

from core.arithmetic.intervals import wilson
from core.tokens import Tokenizer
from core.types import GREEDY, Json, Method, Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import Scorer, gathered, primary_metric, scored
from tasks.task import Coordinates, Materials
from training.rl.engines.engine import Job, run_rollouts
from training.rl.engines.torch_engine import TorchEngine

MethodMaker = Callable[[Tokenizer], Method]
BATCH_TOKENS = 16_384

Told = Callable[["TaskScore"], None]


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What to measure: `samples` samples of `length` tokens (as the task counts them)."""

    task: str
    method: str
    length: int
    samples: int


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The outcome. `score`: mean strict primary metric; `whole`: samples with every gold found;
    `low`, `high`: 95% Wilson interval of the share of whole ones; `turns`: of one sample. `nats`:
    of a reply token, on the average; as it was drawn, so that drawn from the whole distribution it
    is the entropy, by which two models can be given temperatures to compare them at."""

    task: str
    method: str
    length: int
    samples: int
    turns: int
    nats: float
    score: float
    whole: int
    low: float
    high: float
    failures: int


def measure(
    folder: Path,
    methods: Mapping[str, MethodMaker],
    requests: Sequence[ScoreRequest],
    *,
    seed: int,
    sampling: Sampling = GREEDY,
    tell: Told | None = None,
) -> list[TaskScore]:
    """Score the checkpoint in `folder` on what is asked, in order; `tell` hears of each.
    `seed`: of the data and of the sampling."""
    tokenizer = Tokenizer.load(folder)
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype="auto")
    # bfloat16 is 26 times as slow where the CPU cannot multiply it (perf/warmstart.py).
    engine = TorchEngine(model, tokenizer, batch_tokens=BATCH_TOKENS, precision="float32")
    done: list[TaskScore] = []
    for asked in requests:
        method = methods[asked.method](tokenizer)
        task = find_task(asked.task)
        samples = [
            task.sample(Coordinates(index, asked.length, seed), Materials(tokenizer, Corpora()))
            for index in range(asked.samples)
        ]
        jobs = [Job(sample, method, (seed, sample.index)) for sample in samples]
        ends = asyncio.run(run_rollouts(engine, jobs, sampling))
        shares = asyncio.run(_shares(task.scorer, samples, ends))
        done.append(_task_score(asked, shares, ends))
        if tell is not None:
            tell(done[-1])
    return done


def _task_score(
    asked: ScoreRequest, shares: Sequence[float], ends: Sequence[Trajectory]
) -> TaskScore:
    whole = sum(share == 1.0 for share in shares)
    low, high = wilson(whole / len(shares), len(shares))
    return TaskScore(
        task=asked.task,
        method=asked.method,
        length=asked.length,
        samples=len(shares),
        turns=max(len(end.turns) for end in ends),
        nats=round(_nats(ends), 5),
        score=round(sum(shares) / len(shares), 4),
        whole=whole,
        low=round(low, 4),
        high=round(high, 4),
        failures=sum(end.failure is not None for end in ends),
    )


def _nats(ends: Sequence[Trajectory]) -> float:
    """The mean of a reply token's negative log-probability; 0 without any."""
    logprobs = [one for end in ends for turn in end.turns for one in turn.logprobs or ()]
    return -math.fsum(logprobs) / max(len(logprobs), 1)


async def _shares(
    scorer: Scorer, samples: Sequence[Sample], ends: Sequence[Trajectory]
) -> list[float]:
    """The primary metric of each rollout; a failed one has 0."""

    async def one(pair: tuple[Sample, Trajectory]) -> float:
        sample, end = pair
        if end.answer is None:
            return 0.0
        return (await scored(scorer, end.answer, sample))["strict"][primary_metric(scorer)]

    return await gathered(one, zip(samples, ends, strict=True))


def scores_json(scores: Sequence[TaskScore], how: Mapping[str, Json]) -> str:
    """The text of scores.json: how they were measured, and a line a asked."""
    lines = ",\n".join("  " + json.dumps(asdict(one)) for one in scores)
    head = json.dumps(dict(how), indent=1).removesuffix("\n}")
    return f'{head},\n "cells": [\n{lines}\n ]\n}}\n'
