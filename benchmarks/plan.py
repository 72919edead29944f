"""The plan of a run: a suite, the flags on top of it, and what they resolve to."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cells import Choice, cells_of, with_data_at_hand
from benchmarks.doctor.findings import accepted_settings
from benchmarks.methods import METHODS, described, find_method, make_method
from benchmarks.provenance import weights_hash
from benchmarks.store import Cell
from benchmarks.suite import Suite
from core.errors import SettingsChanged, UsageError
from core.files import file_hash
from core.methods import catalogue_settings, method_settings
from core.names import base_of, checked, not_known
from core.outside import file_of, is_outside
from core.tokens import Tokenizer
from core.types import Json, Sampling
from serving.catalogue import (
    ModelEntry,
    SamplingSettings,
    find_model,
    load_catalogue,
    model_name,
)
from serving.downloads import cached_commit
from serving.placement import with_engine
from tasks.corpora.read import Corpora
from tasks.fiction.prose import forms
from tasks.registry import find_task
from tasks.ruler.words import lexicon
from tasks.scoring import primary_metric
from tasks.task import GENERATION, Coordinates, Materials, Task


@dataclass(frozen=True, slots=True)
class Overrides:
    """Flags of `run.py sweep` that change what a suite asks for. None leaves it as it is.
    `catalogue`: the user's own file of models. `engine`: vLLM's engine arguments that differ from
    the catalogue's. `checkpoints`: by model, a folder of weights to take instead of the
    catalogue's. `accept`: checks of the doctor whose findings are taken as they are. `dry`: the
    plan is only looked at, and local weights need not be there."""

    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    lengths: tuple[int, ...] | None = None
    samples: int | None = None
    draws: int | None = None
    seed: int | None = None
    endpoint: str | None = None
    tokenizer: str | None = None
    catalogue: Path | None = None
    engine: Mapping[str, Json] = field(default_factory=dict)
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    accept: tuple[str, ...] = ()
    dry: bool = False

    @property
    def choice(self) -> Choice:
        """The part that chooses cells."""
        counts = self.samples, self.draws
        return Choice(self.models, self.methods, self.tasks, self.lengths, *counts)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model of the run, drawn in one way. `name` is that of its cells; `served_as` is the name
    without sampling, by which servers know it. `entry` is None where only the endpoint knows
    the model. `methods`: name -> settings in full."""

    name: str
    served_as: str
    entry: ModelEntry | None
    tokenizer: Tokenizer
    sampling: Sampling
    methods: Mapping[str, Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do. `settings` is all of it that decides results, as JSON: the same
    settings give the same samples, prompts and, where decoding is greedy, scores. `questions`:
    the longest one looked at of each task."""

    suite: str
    seed: int
    cells: tuple[Cell, ...]
    tasks: Mapping[str, Task]
    models: Mapping[str, ModelPlan]
    corpora: Corpora
    settings: dict[str, Json]
    instead: tuple[str, ...] = ()
    questions: Mapping[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> tuple[str, ...]:
        """Checks of the doctor whose findings the run takes as they are."""
        accepted = self.settings.get("accepted")
        return tuple(accepted) if isinstance(accepted, Mapping) else ()


def make_plan(
    suite: Suite,
    overrides: Overrides,
    data: Path | None,
    given: Mapping[str, Task] | None = None,
) -> Plan:
    """Resolves and checks everything before the first request is sent. `given`: tasks that the
    suite names and that no registry has.

    Raises:
        UsageError: an unknown name or setting, or a cell that cannot be made.
        DataMissing: a task's corpus is not there.
    """
    _check_given(suite, overrides)
    seed = suite.seed if overrides.seed is None else overrides.seed
    cells = cells_of(suite, overrides.choice)

    def task_of(name: str) -> Task:
        return (given or {}).get(name) or find_task(name)

    for task in {cell.task for cell in cells}:
        task_of(task)
    models = _model_plans(cells, suite, overrides, seed)
    _check_draws(cells, models)
    corpora = Corpora(data)

    def make(cell: Cell) -> object:
        materials = Materials(models[cell.model].tokenizer, corpora)
        return task_of(cell.task).sample(Coordinates(0, cell.length, seed), materials)

    cells, instead = with_data_at_hand(cells, suite.otherwise, make)
    tasks = {name: task_of(name) for name in sorted({cell.task for cell in cells})}
    questions = _try_each(cells, tasks, models, seed, corpora)
    plan = Plan(suite.name, seed, cells, tasks, models, corpora, {}, instead, questions)
    if overrides.endpoint is None and not overrides.dry:
        for _, fault in window_faults(plan):
            raise UsageError(f"{fault}. Take smaller budgets.")
    return replace(plan, settings=_settings(plan, suite, overrides))


def _check_given(suite: Suite, overrides: Overrides) -> None:
    """What can be refused before anything is looked up."""
    for flag in ("samples", "draws"):
        count = getattr(overrides, flag)
        if count is not None and count < 1:
            raise UsageError(f"--{flag}: got {count}, expected at least 1")
    if overrides.engine and overrides.endpoint is not None:
        raise UsageError("--engine and --tensor-parallel are for a pool; --endpoint has its own")
    for name in suite.method_settings:
        if name not in METHODS and not is_outside(name):
            raise UsageError(f"suite {suite.name}: method_settings of {not_known(name, METHODS)}")


def _settings(plan: Plan, suite: Suite, overrides: Overrides) -> dict[str, Json]:
    """All that decides the results of a run; what is not given has no entry.

    `methods`: name without settings -> {label, variants, colours, is_agent, prompts}, see
    benchmarks/methods.py. `tasks`: name -> {metric, parameters}. `outside`: files that the user
    brought along, as they were named -> SHA-256.
    """
    methods = dict.fromkeys(base_of(cell.method) for cell in plan.cells)
    brought = {
        base_of(name).partition(":")[0] for name in (*methods, *plan.tasks) if is_outside(name)
    }
    outside: dict[str, Json] = {name: file_hash(file_of(name)) for name in sorted(brought)}
    # An endpoint has weights of its own, whatever the catalogue says of the model.
    has_weights = overrides.endpoint is None and not overrides.dry
    if overrides.catalogue:
        outside[str(overrides.catalogue)] = file_hash(overrides.catalogue)
    given: dict[str, Json] = {}
    if overrides.engine:
        given["engine"] = dict(overrides.engine)
    if overrides.accept:
        given["accepted"] = dict(accepted_settings(overrides.accept))
    if suite.training_length is not None:
        given["training_length"] = suite.training_length
    if plan.instead:
        given["instead"] = [line.partition(" (")[0] for line in plan.instead]
    return {
        "suite": plan.suite,
        "seed": plan.seed,
        "endpoint": overrides.endpoint is not None,
        "models": {name: _model_settings(p, has_weights) for name, p in plan.models.items()},
        "methods": {name: described(name) for name in methods},
        "tasks": {name: _task_settings(task) for name, task in plan.tasks.items()},
        "cells": [list(c.row) for c in plan.cells],
        "generation": GENERATION,
        "data": {
            **plan.corpora.fingerprints(),
            "words": lexicon().fingerprint,
            "forms of fiction": forms().fingerprint,
        },
        "outside": outside,
        **given,
    }


def check_unchanged(stored: Mapping[str, Any], wanted: Mapping[str, Any], run_dir: Path) -> None:
    """A run goes on only with the settings that it began with, its cells in any order. What is
    accepted of the doctor's findings may grow.

    Raises:
        SettingsChanged: with a diff of what changed.
    """
    # One way through JSON: there a tuple is a list, as it is in the store.
    both = [
        json.loads(
            json.dumps({**s, "cells": sorted(map(list, s.get("cells", ()))), "accepted": None})
        )
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


def _model_plans(
    cells: Sequence[Cell], suite: Suite, overrides: Overrides, seed: int
) -> dict[str, ModelPlan]:
    """The models of the cells, in their order, each with its methods."""
    catalogue = load_catalogue(overrides.catalogue)
    methods: dict[str, dict[str, None]] = {}
    for cell in cells:
        methods.setdefault(cell.model, {})[cell.method] = None
    known = {model_name(name).base for name in methods}
    if unknown := sorted(overrides.checkpoints.keys() - known):
        raise UsageError(f"--checkpoint: the run has no model {', '.join(unknown)}")
    tokenizers: dict[str, Tokenizer] = {}
    plans = {}
    for name, named in methods.items():
        base = model_name(name).base
        entry = _entry(base, overrides, catalogue)
        if base not in tokenizers:
            tokenizers[base] = _tokenizer(base, entry, overrides)
        settings = {
            method: method_settings(
                find_method(method),
                method,
                catalogue_settings(find_method(method), method, entry.methods if entry else {}),
                suite.method_settings.get(base_of(method), {}),
            )
            for method in named
        }
        sampling = _sampling(name, entry, suite, seed)
        plans[name] = ModelPlan(name, base, entry, tokenizers[base], sampling, settings)
    return plans


def tokenizer_of(model: str, overrides: Overrides) -> Tokenizer:
    """The tokenizer of a model as a plan with these flags has it.

    Raises:
        UsageError: there is no such model, or no tokenizer of it.
    """
    base = model_name(model).base
    return _tokenizer(base, _entry(base, overrides, load_catalogue(overrides.catalogue)), overrides)


def _entry(
    base: str, overrides: Overrides, catalogue: Mapping[str, ModelEntry]
) -> ModelEntry | None:
    if folder := overrides.checkpoints.get(base):
        if overrides.endpoint is not None:
            raise UsageError(f"--checkpoint {base}: an endpoint has its own weights; give one flag")
        entry = find_model(base, catalogue).with_weights(folder)
    elif overrides.endpoint is not None and base not in catalogue:
        return None
    else:
        entry = find_model(base, catalogue)
    return with_engine(entry, overrides.engine)


def _tokenizer(base: str, entry: ModelEntry | None, overrides: Overrides) -> Tokenizer:
    if overrides.tokenizer:
        return Tokenizer.load(overrides.tokenizer)
    if entry:
        return Tokenizer.load(entry.location, entry.revision)
    raise UsageError(
        f"model {base!r} is not in the catalogue: give --tokenizer, the folder of its "
        "tokenizer.json, so that contexts can be cut into chunks of its tokens."
    )


def _sampling(name: str, entry: ModelEntry | None, suite: Suite, seed: int) -> Sampling:
    """The model's default, under the suite's, under that in the model's name."""
    drawn = checked(SamplingSettings, model_name(name).settings, f"model {name}")
    layers = [layer.model_dump(exclude_unset=True) for layer in (suite.sampling, drawn)]
    default = entry.sampling if entry else Sampling()
    return replace(default, **(layers[0] | layers[1]), seed=seed)


def _model_settings(plan: ModelPlan, has_weights: bool) -> dict[str, Json]:
    entry = plan.entry
    has_weights = has_weights and entry is not None and entry.is_local
    drawn_so = plan.name != plan.served_as  # published numbers were not
    return {
        "source": entry.source if entry else None,
        "revision": _commit(entry) if entry else None,
        "published_name": entry.published_name if entry and not drawn_so else None,
        "demonstration": entry.demonstration if entry else False,
        "window": entry.window_tokens if entry else None,
        "note": entry.note if entry else "",
        "weights": weights_hash(Path(entry.location)) if entry and has_weights else None,
        "tokenizer": plan.tokenizer.fingerprint,
        "sampling": asdict(plan.sampling),
        "methods": {name: dict(settings) for name, settings in plan.methods.items()},
    }


def _commit(entry: ModelEntry) -> str | None:
    """The commit of a hub's model that is served: what the cache has, as its tokenizer was read
    from there and replicas look there alone."""
    return None if entry.is_local else cached_commit(entry.source, entry.revision)


def _task_settings(task: Task) -> dict[str, Json]:
    """`metric`: the score that stands for the task. `parameters`: all that shapes its samples."""
    return {"metric": primary_metric(task.scorer), "parameters": dict(task.parameters)}


def _try_each(
    cells: Sequence[Cell],
    tasks: Mapping[str, Task],
    models: Mapping[str, ModelPlan],
    seed: int,
    corpora: Corpora,
) -> dict[str, str]:
    """Makes the samples that are the likeliest to be impossible (all of each task's shortest
    length, one of its longest), so that it is told before a pool is started. Models that
    share a tokenizer meet the same samples. Returns each task's longest question."""
    tokenizers = {plan.tokenizer.fingerprint: plan.tokenizer for plan in models.values()}
    by_task: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        key = cell.task, models[cell.model].tokenizer.fingerprint
        by_task.setdefault(key, []).append(cell)
    questions: dict[str, str] = {}
    for (name, fingerprint), group in by_task.items():
        group.sort(key=lambda cell: (cell.length, -cell.samples))
        indices = [(group[0], i) for i in range(group[0].samples)] + [(group[-1], 0)]
        task, tokenizer = tasks[name], tokenizers[fingerprint]
        for cell, index in indices:
            at = Coordinates(index, cell.length, seed)
            sample = task.sample(at, Materials(tokenizer, corpora))
            questions[name] = max(questions.get(name, ""), sample.problem.question, key=len)
    return questions


def _check_draws(cells: Sequence[Cell], models: Mapping[str, ModelPlan]) -> None:
    """Refuses several draws where each would be the first again."""
    for cell in cells:
        if cell.draws > 1 and models[cell.model].sampling.temperature == 0:
            raise UsageError(
                f"{cell.task} by {cell.method} on {cell.model}: {cell.draws} draws at temperature "
                "0 are the same answer each. Take draws = 1, or a temperature."
            )


def window_faults(plan: Plan) -> Iterator[tuple[str, str]]:
    """(model, what is wrong) for budgets whose largest turn, with the question, the prompt around
    it and the chat template, is more than a model's window. A method that cannot tell is not
    checked."""
    for model, method, task in dict.fromkeys((c.model, c.method, c.task) for c in plan.cells):
        entry, most = plan.models[model].entry, most_tokens(plan, model, method, task)
        if entry is not None and most is not None and most > entry.window_tokens:
            yield (
                model,
                f"{method} on {model}: a turn of {task} may take {most} tokens (prompt, chat "
                f"template and reply), the window has {entry.window_tokens}; its settings are "
                f"{json.dumps(plan.models[model].methods[method])}",
            )


def most_tokens(plan: Plan, model: str, method: str, task: str) -> int | None:
    """Tokens of a method's largest turn, prompt and reply; None where it cannot tell."""
    planned = plan.models[model]
    made = make_method(method, planned.tokenizer, planned.methods[method])
    most = getattr(made, "most_tokens", None)
    return None if most is None else int(most(plan.questions[task]))
