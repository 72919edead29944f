"""What every task of the registry offers, and how its samples are made reproducible.

A sample is a function of (task, parameters, length, seed, index) and of nothing else: it can
be made alone, in any order, on any number of workers. Each has a random generator of its own,
seeded from a hash of those five. Its id also covers what the bytes depend on besides: the
tokenizer that measured the length, and the corpora.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Json, Match, Sample
from tasks.corpora.read import Corpora
from tasks.scoring import Scorer

GENERATION = 1
"""Part of every seed and id. Raise it when a change gives other bytes for the same seed."""

LATER = (("depth", None), ("near_misses", 0.0), ("published", False))
"""Settings that are no part of seeds and ids while they are unset."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Which sample of a task: number `index` (from 0) of the cell of that length and seed.

    `length`: tokens of RULER's whole prompt, answer prefix included, and of the reply budget.
    """

    index: int
    length: int
    seed: int


@dataclass(frozen=True, slots=True)
class Materials:
    """What samples are made with: the tokenizer that measures them, and the public corpora."""

    tokenizer: Tokenizer
    corpora: Corpora


class Named(Protocol):
    """What seeds and ids are made of."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Json]: ...


@runtime_checkable
class Task(Named, Protocol):
    """A task makes samples of any length. Frozen: another setting is another task.

    `match` says how the golds count, `scorer` what an answer is worth (a method will do),
    `generation_tokens` is RULER's reply budget, `source` the paper's section or address.
    `parameters` is all that shapes a sample besides (length, seed, index), as JSON.
    """

    @property
    def summary(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def match(self) -> Match: ...
    @property
    def scorer(self) -> Scorer: ...
    @property
    def generation_tokens(self) -> int: ...

    def __hash__(self) -> int: ...

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """The sample at these coordinates.

        `at.length`: tokens of RULER's whole prompt, answer prefix included, plus
        `generation_tokens`. The sample never exceeds it, and falls short of it by less than
        one haystack unit (a line, a word of essay, a document), or by whole steps of them
        with `published` (see `tasks.haystack.published_cells`).

        Raises:
            UsageError: the length is too small for the task; the text names the least one.
            DataMissing: the task needs a corpus file that is not there.
        """
        ...


def parameters_of(task: Any) -> Mapping[str, Json]:
    """A task's fields but its name and summary. LATER ones are left out where they are unset,
    so that samples made before there were such settings keep their bytes and ids."""
    settings = {field.name: getattr(task, field.name) for field in fields(task)}
    return {
        key: value
        for key, value in settings.items()
        if key not in ("name", "summary") and (key, value) not in LATER
    }


def check_depth(name: str, depth: float | None) -> None:
    """Refuses a depth that is no share.

    Raises:
        UsageError: the depth is below 0 or above 1.
    """
    if depth is not None and not 0 <= depth <= 1:
        raise UsageError(f"{name}: depth {depth}, expected 0 (the beginning) to 1 (the end)")


def sample_rng(task: Named, at: Coordinates) -> random.Random:
    """The sample's own random generator. It does not depend on the depth, so that a sample
    has the same needles and the same question at all depths."""
    if at.index < 0:
        raise UsageError(f"sample index: got {at.index}, expected 0 or more")
    return random.Random(seed_of(task.name, task.parameters, at.length, at.seed, at.index))


def cell_seed(task: Named, at: Coordinates) -> int:
    """Seed of what all samples of a cell share, at all depths."""
    return seed_of(task.name, task.parameters, at.length, at.seed)


def seed_of(name: str, parameters: Mapping[str, Json], *numbers: int) -> int:
    """A seed made of all of these but the depth."""
    settings = {k: v for k, v in parameters.items() if k != "depth"}
    return int(_digest([GENERATION, name, settings, *numbers]), 16)


def sample_id(task: Named, at: Coordinates, sources: Mapping[str, str]) -> str:
    """Content hash of a sample: 64 hexadecimal digits.

    `sources`: name -> SHA-256 of what the bytes depend on besides (tokenizer, corpora).
    """
    parameters = dict(task.parameters)
    return _digest([GENERATION, task.name, parameters, at.length, at.seed, at.index, dict(sources)])


def _digest(value: Sequence[object]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
