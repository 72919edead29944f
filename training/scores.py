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

from core.tokens import Tokenizer
from core.types import GREEDY, Json, Method, Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import score
from tasks.task import Coordinates, Materials
from training.rl.engines.engine import Job, run_rollouts
from training.rl.engines.torch_engine import TorchEngine

MethodMaker = Callable[[Tokenizer], Method]
Told = Callable[["CellScore"], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """What to measure: `samples` samples of `length` tokens (as the task counts them)."""

    task: str
    method: str
    length: int
    samples: int


@dataclass(frozen=True, slots=True)
class CellScore:
    """The outcome. `score`: mean strict sub_em; `whole`: samples with every gold found;
    `low`, `high`: 95% Wilson interval of the share of whole ones; `turns`: of one sample."""

    task: str
    method: str
    length: int
    samples: int
    turns: int
    score: float
    whole: int
    low: float
    high: float
    failures: int


def measure(
    folder: Path,
    methods: Mapping[str, MethodMaker],
    cells: Sequence[Cell],
    *,
    seed: int,
    sampling: Sampling = GREEDY,
    device: str = "cpu",
    batch_tokens: int = 16384,
    tell: Told | None = None,
) -> list[CellScore]:
    """Score the checkpoint in `folder` on each cell, in order; `tell` hears of each.
    `seed`: of the data and of the sampling."""
    tokenizer = Tokenizer.load(folder)
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype="auto").to(device)
    engine = TorchEngine(model, tokenizer, batch_tokens=batch_tokens, precision="bfloat16")
    done: list[CellScore] = []
    for cell in cells:
        method = methods[cell.method](tokenizer)
        task = find_task(cell.task)
        samples = [
            task.sample(Coordinates(index, cell.length, seed), Materials(tokenizer, Corpora()))
            for index in range(cell.samples)
        ]
        jobs = [Job(sample, method, (seed, sample.index)) for sample in samples]
        ends = asyncio.run(run_rollouts(engine, jobs, sampling))
        done.append(_cell_score(cell, samples, ends))
        if tell is not None:
            tell(done[-1])
    return done


def _cell_score(cell: Cell, samples: Sequence[Sample], ends: Sequence[Trajectory]) -> CellScore:
    shares = [_share(sample, end) for sample, end in zip(samples, ends, strict=True)]
    whole = sum(share == 1.0 for share in shares)
    low, high = wilson(whole, len(shares))
    return CellScore(
        task=cell.task,
        method=cell.method,
        length=cell.length,
        samples=len(shares),
        turns=max(len(end.turns) for end in ends),
        score=round(sum(shares) / len(shares), 4),
        whole=whole,
        low=round(low, 4),
        high=round(high, 4),
        failures=sum(end.failure is not None for end in ends),
    )


def _share(sample: Sample, end: Trajectory) -> float:
    """The share of golds found; a failed rollout found none."""
    if end.answer is None:
        return 0.0
    scores = score(end.answer.reply, end.answer.prediction, sample.golds, sample.match)
    return scores["strict"]["sub_em"]


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """95% Wilson interval of a share. Raises ValueError without trials."""
    if count < 1:
        raise ValueError("no samples: an interval needs at least one")
    share, spread = hits / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def scores_json(scores: Sequence[CellScore], how: Mapping[str, Json]) -> str:
    """The text of scores.json: how they were measured, and a line a cell."""
    lines = ",\n".join("  " + json.dumps(asdict(one)) for one in scores)
    head = json.dumps(dict(how), indent=1).removesuffix("\n}")
    return f'{head},\n "cells": [\n{lines}\n ]\n}}\n'
