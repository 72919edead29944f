"""The warm start's recipe: one data file holds all that decides the weights.

Its stages are a curriculum. A stage lasts `steps` steps; one with `until` ends sooner, at the
first evaluation at which that share of its own held-out turns is written exactly, on the average of
its kinds of turns and tasks. Which stage a step belongs to follows from the curve (`stage_starts`),
so a run that was killed goes on as an unbroken one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from core.errors import UsageError
from core.names import checked
from training.warmstart.demonstrations import Form, Kind
from training.warmstart.mimetic import PocketShape
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape

Precision = Literal["bfloat16", "float32"]


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

    def shares(self, shape: TaskShape) -> dict[Kind, float]:
        """How often each kind of turn of a task is drawn, relative to each other."""
        return {
            "memory": self.memory,
            "gru_memory": self.gru_memory,
            "answer": self.answer,
            "gru_answer": self.gru_answer,
            "full_context": self.full_context * shape.direct,
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the curriculum. `looks`: weight of the loss of where heads look
    (`training.warmstart.guide`), `absent`: also where the section does not tell what is looked for;
    `until` as above; what else has no word here as in `Odds`."""

    steps: int
    buckets: tuple[Bucket, ...]
    tasks: tuple[TaskShape, ...]
    near: float
    blank: float = 0.0
    one_new: float = 0.85
    again: float = 0.0
    looks: float = 0.0
    absent: bool = False
    drill: float = 0.0
    inverse: float = 0.25
    until: float | None = None

    @property
    def odds(self) -> Odds:
        return Odds(
            self.near,
            self.blank,
            self.one_new,
            self.again,
            self.drill,
            self.inverse,
        )

    def tasks_of(self, bucket: Bucket) -> list[TaskShape]:
        """The tasks that are drawn for a bucket."""
        return [task for task in self.tasks if task.least_tokens <= bucket.tokens]

    @property
    def turns(self) -> set[tuple[str, Kind]]:
        """The tasks, by name, and the kinds of turns that are drawn of them."""
        return {
            (task.name, kind)
            for bucket in self.buckets
            for task in self.tasks_of(bucket)
            for kind, share in bucket.shares(task).items()
            if share * bucket.weight * task.weight > 0
        }


DEFAULT_FORM = Form()


@dataclass(frozen=True, slots=True)
class WarmstartRecipe:
    """How the pocket model is made. Tokens are per optimizer step, padding included.

    `layers_rate`: factor on the learning rate of all but the embeddings. At the full rate
    AdamW's first hundred steps, equally large in every weight, undo what the mimetic start
    wrote but the loss does not yet use. `precision`: of the matrix products, by autocast; weights
    and optimizer are float32 either way. `model`: where `init` is a checkpoint, its folder; the
    shape must be the recipe's, but for the window.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    seed: int
    shape: PocketShape
    init: Literal["mimetic", "random", "checkpoint"]
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
    precision: Precision = "bfloat16"
    eval_every: int = 100
    eval_samples: int = 24
    save_every: int = 200
    form: Form = DEFAULT_FORM
    model: str | None = None

    @property
    def most_steps(self) -> int:
        """The steps of a run in which no stage ends early."""
        return sum(stage.steps for stage in self.stages)

    def __post_init__(self) -> None:
        if (self.init == "checkpoint") != (self.model is not None):
            raise UsageError(
                f"recipe {self.name}: init is {self.init} and model is {self.model}; expected a "
                'folder (or --model) where init is "checkpoint", and none elsewhere'
            )
        if not self.stages or self.stages[-1].until is not None:
            raise UsageError(
                f"recipe {self.name}: the last stage has a fixed number of steps, at whose end the "
                "rate is zero; got until (or no stage at all)"
            )
        fixed = takewhile(lambda stage: stage.until is None, reversed(self.stages))
        if self.decay_steps > (known := sum(stage.steps for stage in fixed)):
            raise UsageError(
                f"recipe {self.name}: decay_steps {self.decay_steps}, expected at most the "
                f"{known} steps of the last stages, behind the last with until"
            )
        for stage in self.stages:
            shortest = min(task.least_tokens for task in stage.tasks)
            if any(bucket.tokens < shortest for bucket in stage.buckets):
                raise UsageError(
                    f"recipe {self.name}: a bucket is shorter than the least_tokens of all tasks "
                    f"of its stage ({shortest})"
                )
        self._refuse_turns_never_drawn()

    def _refuse_turns_never_drawn(self) -> None:
        """A task that has a kind of turns only in buckets too short for it is not taught it."""
        drawn = {turn for stage in self.stages for turn in stage.turns}
        kinds = sorted({kind for _, kind in drawn})
        for task in {task.name: task for stage in self.stages for task in stage.tasks}.values():
            for kind in kinds:
                if (task.name, kind) not in drawn and (kind != "full_context" or task.direct):
                    raise UsageError(
                        f"recipe {self.name}: no stage draws {task.name} as {kind}, which other "
                        f"tasks are drawn as; its least_tokens is {task.least_tokens}, expected at "
                        "most the tokens of a bucket with that kind"
                    )


@dataclass(frozen=True, slots=True)
class Course:
    """A run's way through its stages so far: `starts[i]`, the first step (from 0) of stage i."""

    recipe: WarmstartRecipe
    starts: tuple[int, ...] = (0,)

    def number_at(self, step: int) -> int:
        """The stage's number for a step from 0, those that end by their length included."""
        return sum(start <= step for start in self._until(step).starts) - 1

    def stage_at(self, step: int) -> Stage:
        """The stage that a step (from 0) belongs to."""
        return self.recipe.stages[self.number_at(step)]

    def after(self, step: int, exact: Mapping[str, float]) -> Course:
        """The course after an evaluation at which `step` steps are done. `exact`: shares of the
        stage's own held-out turns."""
        now = self._until(step - 1)
        stage = self.recipe.stages[len(now.starts) - 1]
        shares = [share for share in exact.values() if share == share]
        if stage.until is None or not shares or sum(shares) / len(shares) < stage.until:
            return now
        return Course(self.recipe, (*now.starts, step))

    def ends(self, step: int) -> int | None:
        """How many steps the run has in all, once no stage is left that may end early."""
        now = self._until(step)
        left = self.recipe.stages[len(now.starts) - 1 :]
        if any(stage.until is not None for stage in left):
            return None
        return now.starts[-1] + sum(stage.steps for stage in left)

    def rate_at(self, step: int) -> float:
        """Learning rate: linear warm-up, constant, linear decay to zero at the end."""
        recipe, end = self.recipe, self.ends(step)
        rise = (step + 1) / recipe.warmup_steps if recipe.warmup_steps else 1.0
        fall = 1.0
        if end is not None and recipe.decay_steps:
            fall = (end - step) / recipe.decay_steps
        return recipe.learning_rate * min(1.0, rise, fall)

    def _until(self, step: int) -> Course:
        """With the stages that have begun by their predecessors' length until `step`."""
        starts = list(self.starts)
        while len(starts) < len(self.recipe.stages):
            following = starts[-1] + self.recipe.stages[len(starts) - 1].steps
            if following > step:
                break
            starts.append(following)
        return Course(self.recipe, tuple(starts))


HERE = "stage "
"""What the names of a stage's own held-out turns begin with in the curve."""


def course_of(recipe: WarmstartRecipe, curve: Iterable[Mapping[str, Any]]) -> Course:
    """The course that a curve's rows tell."""
    course = Course(recipe)
    for row in curve:
        exact = {name: value for name, value in row.items() if name.startswith(HERE)}
        course = course.after(int(row["step"]), exact)
    return course


def load_recipe(path: Path, *, model: str | None = None) -> WarmstartRecipe:
    """Read a recipe file (JSON). `model`: in place of the file's.

    Raises:
        UsageError: it cannot be read, or is no recipe; names the field.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a recipe: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: got {type(data).__name__}, expected an object")
    return checked(WarmstartRecipe, data if model is None else {**data, "model": model}, str(path))


def recipe_json(recipe: WarmstartRecipe) -> str:
    """The recipe as the text of its file."""
    return json.dumps(asdict(recipe), indent=1) + "\n"
