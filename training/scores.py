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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

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
from training.rl.episodes.memory_turns import note_metrics, turns_of
from training.rl.episodes.notes import Notebook, notebook_of

MethodMaker = Callable[[Tokenizer], Method]
BATCH_TOKENS = 16_384

Told = Callable[["TaskScore"], None]


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What to measure: `samples` samples of `length` tokens (as the task counts them).
    `chunk_tokens`: of the method's memory turns, to read what they noted; None not to."""

    task: str
    method: str
    length: int
    samples: int
    chunk_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The outcome. `score`: mean strict primary metric; `whole`: samples with every gold found;
    `low`, `high`: 95% Wilson interval of the share of whole ones; `turns`: of one sample. `nats`:
    of a reply token, on the average; as it was drawn, so that drawn from the whole distribution it
    is the entropy, by which two models can be given temperatures to compare them at. `notes`: the
    memory turns' errors (`note_metrics`) and what follows from them (`reader`); empty where nobody
    knows what is right."""

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
    notes: Mapping[str, float] = field(default_factory=dict)


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
        notes = _notes(asked, samples, ends, tokenizer, done)
        done.append(_task_score(asked, shares, ends, notes))
        if tell is not None:
            tell(done[-1])
    return done


def _task_score(
    asked: ScoreRequest,
    shares: Sequence[float],
    ends: Sequence[Trajectory],
    notes: Mapping[str, float],
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
        notes={name: round(value, 5) for name, value in notes.items()},
    )


def _notes(
    asked: ScoreRequest,
    samples: Sequence[Sample],
    ends: Sequence[Trajectory],
    tokenizer: Tokenizer,
    done: Sequence[TaskScore],
) -> dict[str, float]:
    """See `TaskScore.notes`. Of `done` the first of the same task and method lends the rates."""
    size = asked.chunk_tokens
    if size is None:
        return {}
    notebooks = [notebook_of(sample, tokenizer, size) for sample in samples]
    read = [
        (sample, end, book)
        for sample, end, book in zip(samples, ends, notebooks, strict=True)
        if book is not None
    ]
    if not read:
        return {}
    errors = note_metrics(
        turn for sample, end, book in read for turn in turns_of(sample, [end], book, size)
    )
    alike = (one.notes for one in done if (one.task, one.method) == (asked.task, asked.method))
    rates = next(alike, errors)
    return errors | reader([(sample, book) for sample, _, book in read], tokenizer, size, rates)


def reader(
    samples: Sequence[tuple[Sample, Notebook]],
    tokenizer: Tokenizer,
    chunk_tokens: int,
    rates: Mapping[str, float],
) -> dict[str, float]:
    """How far a memory comes, by arithmetic, read to the end. `reachable`: the score of a reader
    without an error. `follows`: of one that stores and keeps an entry with the probabilities of
    `rates`, in each turn anew; with those of a short length it says whether the decay with length
    is that of errors alike in all turns."""
    reachable, follows = [], []
    for sample, book in samples:
        chunks = math.ceil(sample.problem.context.count(tokenizer) / chunk_tokens)
        found = book.read_so(chunks)
        held = [
            rates.get("stored", 1.0) * rates.get("kept", 1.0) ** (chunks - 1 - found[number])
            if number in found
            else 0.0
            for number in range(len(book.facts))
        ]
        # One answer takes all of its facts; of several golds each has its own.
        apart = sample.match == "all"
        reachable.append(len(found) / len(held) if apart else float(len(found) == len(held)))
        follows.append(math.fsum(held) / len(held) if apart else math.prod(held))
    return {"reachable": fmean(reachable), "follows": fmean(follows)}


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
