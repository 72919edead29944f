"""The plan of a run: a suite, the flags on top of it, and what they resolve to."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cells import Choice, cells_of, with_data_at_hand
from benchmarks.methods import METHODS, method_settings, split_method
from benchmarks.provenance import weights_hash
from benchmarks.store import Cell
from benchmarks.suite import Suite
from core.errors import SettingsChanged, UsageError
from core.tokens import Tokenizer
from core.types import Json, Sampling, Scalar
from serving.catalogue import ModelEntry, find_model
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import primary_metric
from tasks.task import Coordinates, Materials, Task


@dataclass(frozen=True, slots=True)
class Overrides:
    """Flags of `run.py sweep` that change what a suite asks for. None leaves it as it is.
    `checkpoints`: by model, a folder of weights to take instead of the catalogue's. `dry`: the
    plan is only looked at, and local weights need not be there."""

    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    lengths: tuple[int, ...] | None = None
    samples: int | None = None
    seed: int | None = None
    endpoint: str | None = None
    tokenizer: str | None = None
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    dry: bool = False

    @property
    def choice(self) -> Choice:
        """The part that chooses cells."""
        return Choice(self.models, self.methods, self.tasks, self.lengths, self.samples)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model of the run. `entry` is None where only the endpoint knows the model."""

    name: str
    entry: ModelEntry | None
    tokenizer: Tokenizer
    sampling: Sampling
    methods: Mapping[str, Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do. `settings` is all of it that decides results, as JSON: the same
    settings give the same samples, prompts and, where decoding is greedy, scores."""

    suite: str
    seed: int
    cells: tuple[Cell, ...]
    tasks: Mapping[str, Task]
    models: Mapping[str, ModelPlan]
    corpora: Corpora
    settings: dict[str, Json]
    instead: tuple[str, ...] = ()


def make_plan(suite: Suite, overrides: Overrides, data: Path | None) -> Plan:
    """Resolves and checks everything before the first request is sent.

    Raises:
        UsageError: an unknown name or setting, or a cell that cannot be made.
        DataMissing: a task's corpus is not there.
    """
    if overrides.samples is not None and overrides.samples < 1:
        raise UsageError(f"--samples: got {overrides.samples}, expected at least 1")
    seed = suite.seed if overrides.seed is None else overrides.seed
    if unknown := sorted(suite.method_settings.keys() - METHODS.keys()):
        raise UsageError(f"suite {suite.name}: method_settings of {unknown}, no such method")
    cells = cells_of(suite, overrides.choice)
    for task in {cell.task for cell in cells}:
        find_task(task)
    pairs = dict.fromkeys((cell.model, cell.method) for cell in cells)
    models = {
        name: _model_plan(name, [m for n, m in pairs if n == name], suite, overrides, seed)
        for name in dict.fromkeys(name for name, _ in pairs)
    }
    if unknown := sorted(overrides.checkpoints.keys() - models.keys()):
        raise UsageError(f"--checkpoint: the run has no model {', '.join(unknown)}")
    corpora = Corpora(data)

    def make(cell: Cell) -> object:
        materials = Materials(models[cell.model].tokenizer, corpora)
        return find_task(cell.task).sample(Coordinates(0, cell.length, seed), materials)

    cells, instead = with_data_at_hand(cells, suite.otherwise, make)
    tasks = {name: find_task(name) for name in sorted({cell.task for cell in cells})}
    _try_each(cells, tasks, models, seed, corpora)
    settings: dict[str, Json] = {
        "suite": suite.name,
        "seed": seed,
        "endpoint": overrides.endpoint is not None,
        "models": {name: _model_settings(p, overrides.dry) for name, p in models.items()},
        "tasks": {name: _task_settings(task) for name, task in tasks.items()},
        "cells": [[c.task, c.length, c.method, c.model, c.samples] for c in cells],
        "data": dict(corpora.fingerprints()),
    }
    if suite.training_length is not None:
        settings["training_length"] = suite.training_length
    if instead:
        settings["instead"] = [line.partition(" (")[0] for line in instead]
    return Plan(suite.name, seed, cells, tasks, models, corpora, settings, instead)


def check_unchanged(stored: Mapping[str, Any], wanted: Mapping[str, Any], run_dir: Path) -> None:
    """A run goes on only with the settings that it began with, its cells in any order.

    Raises:
        SettingsChanged: with a diff of what changed.
    """
    # One way through JSON: there a tuple is a list, as it is in the store.
    both = [
        json.loads(json.dumps({**s, "cells": sorted(map(list, s.get("cells", ())))}))
        for s in (stored, wanted)
    ]
    if both[0] == both[1]:
        return
    before, after = (json.dumps(s, indent=1, sort_keys=True).splitlines() for s in both)
    lines = difflib.unified_diff(before, after, "this run", "this command", lineterm="", n=1)
    raise SettingsChanged(
        f"{run_dir} holds a run with other settings:\n" + "\n".join(lines) + "\n"
        "Give the settings that the run began with, or another --out."
    )


def _model_plan(
    name: str, methods: Sequence[str], suite: Suite, overrides: Overrides, seed: int
) -> ModelPlan:
    entry = _catalogued(name, overrides)
    if overrides.tokenizer:
        tokenizer = Tokenizer.load(overrides.tokenizer)
    elif entry:
        tokenizer = Tokenizer.load(entry.location, entry.revision)
    else:
        raise UsageError(
            f"model {name!r} is not in the catalogue: give --tokenizer, the folder of its "
            "tokenizer.json, so that contexts can be cut into chunks of its tokens."
        )
    sampling = replace(entry.sampling if entry else Sampling(), seed=seed)
    return ModelPlan(
        name,
        entry,
        tokenizer,
        replace(sampling, **suite.sampling),  # type: ignore[arg-type]
        {
            method: method_settings(
                method, _budget(entry, base), suite.method_settings.get(base, {})
            )
            for method in methods
            for base, _ in [split_method(method)]
        },
    )


def _catalogued(name: str, overrides: Overrides) -> ModelEntry | None:
    if folder := overrides.checkpoints.get(name):
        if overrides.endpoint is not None:
            raise UsageError(f"--checkpoint {name}: an endpoint has its own weights; give one flag")
        return find_model(name).with_weights(folder)
    try:
        return find_model(name)
    except UsageError:
        if overrides.endpoint is None:
            raise
        return None


def _budget(entry: ModelEntry | None, method: str) -> Mapping[str, Scalar]:
    """The catalogue's settings of a method for a model; none for a model it does not know."""
    return entry.budget(method) if entry else {}


def _model_settings(plan: ModelPlan, dry: bool) -> dict[str, Json]:
    entry = plan.entry
    has_weights = entry is not None and entry.is_local and not dry
    return {
        "source": entry.source if entry else None,
        "published_name": entry.published_name if entry else None,
        "demonstration": entry.is_local if entry else False,
        "window": entry.window_tokens if entry else None,
        "note": entry.note if entry else "",
        "weights": weights_hash(Path(entry.location)) if entry and has_weights else None,
        "tokenizer": plan.tokenizer.fingerprint,
        "sampling": asdict(plan.sampling),
        "methods": {name: dict(settings) for name, settings in plan.methods.items()},
    }


def _task_settings(task: Task) -> dict[str, Json]:
    """`metric`: the score that stands for the task. `parameters`: all that shapes its samples."""
    return {"metric": primary_metric(task.scorer), "parameters": dict(task.parameters)}


def _try_each(
    cells: Sequence[Cell],
    tasks: Mapping[str, Task],
    models: Mapping[str, ModelPlan],
    seed: int,
    corpora: Corpora,
) -> None:
    """Makes the samples that are the likeliest to be impossible (all of each task's shortest
    length, one of its longest), so that it is told before a pool is started. Models that
    share a tokenizer meet the same samples."""
    tokenizers = {plan.tokenizer.fingerprint: plan.tokenizer for plan in models.values()}
    by_task: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        key = cell.task, models[cell.model].tokenizer.fingerprint
        by_task.setdefault(key, []).append(cell)
    for (name, fingerprint), group in by_task.items():
        group.sort(key=lambda cell: (cell.length, -cell.samples))
        indices = [(group[0], i) for i in range(group[0].samples)] + [(group[-1], 0)]
        task, tokenizer = tasks[name], tokenizers[fingerprint]
        for cell, index in indices:
            task.sample(Coordinates(index, cell.length, seed), Materials(tokenizer, corpora))
