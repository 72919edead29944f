"""The warm start's recipe: one data file holds all that decides the weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from core.errors import UsageError
from core.names import checked
from training.warmstart.demonstrations import Odds
from training.warmstart.mimetic import PocketShape
from training.warmstart.stories import TaskShape


@dataclass(frozen=True, slots=True)
class Bucket:
    """One fixed sequence length and what is drawn for it. `weight`: share of the steps.

    The weights of the kinds are relative to each other.
    """

    tokens: int
    weight: float
    memory: float = 1.0
    answer: float = 0.0
    full_context: float = 0.0
    gru_memory: float = 0.0
    gru_answer: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the curriculum; `near`, `blank` and `slips` as in `Odds`."""

    steps: int
    buckets: tuple[Bucket, ...]
    tasks: tuple[TaskShape, ...]
    near: float
    blank: float = 0.0
    slips: float = 0.0

    @property
    def odds(self) -> Odds:
        return Odds(self.near, self.blank, self.slips)


@dataclass(frozen=True, slots=True)
class WarmstartRecipe:
    """How the pocket model is made. Tokens are per optimizer step, padding included.

    `layers_rate`: factor on the learning rate of all but the embeddings. At the full rate
    AdamW's first hundred steps, equally large in every weight, undo what the mimetic start
    wrote but the loss does not yet use.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    seed: int
    shape: PocketShape
    init: Literal["mimetic", "random"]
    stages: tuple[Stage, ...]
    learning_rate: float
    batch_tokens: int
    warmup_steps: int
    decay_steps: int
    layers_rate: float = 1.0
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    clip_norm: float = 1.0
    eval_every: int = 100
    eval_samples: int = 24
    save_every: int = 200

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    def stage_at(self, step: int) -> Stage:
        """The stage that step (from 0) belongs to."""
        for stage in self.stages:
            if step < stage.steps:
                return stage
            step -= stage.steps
        return self.stages[-1]

    def rate_at(self, step: int) -> float:
        """Learning rate: linear warm-up, constant, linear decay to zero at the end."""
        rise = (step + 1) / self.warmup_steps if self.warmup_steps else 1.0
        fall = (self.steps - step) / self.decay_steps if self.decay_steps else 1.0
        return self.learning_rate * min(1.0, rise, fall)


def load_recipe(path: Path) -> WarmstartRecipe:
    """Read a recipe file (JSON).

    Raises:
        UsageError: it cannot be read, or is no recipe; names the field.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a recipe: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: got {type(data).__name__}, expected an object")
    return checked(WarmstartRecipe, data, str(path))


def recipe_json(recipe: WarmstartRecipe) -> str:
    """The recipe as the text of its file."""
    return json.dumps(asdict(recipe), indent=1) + "\n"
