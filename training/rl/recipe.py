"""The recipe of an RL run: one TOML file holds all that decides the weights.

The presets beside this file: `memagent-7b`, `memagent-14b` and `grumem` are the published
values (PROTOCOL 4; what the papers do not say is marked there as an assumption), `pocket-*`
train the pocket model on two cores. A recipe may say `extends = "pocket"`: it then gives only
what differs, tables merged key by key, lists replaced.

    extends = "pocket"
    method = "gru_mem"
    alpha = 0.9
    [loss]
    clip_high = 0.28
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.errors import UsageError
from core.names import base_of, checked, not_known
from core.types import Sampling, Scalar
from training.rl.loss import LossSettings
from training.rl.rewards import FormatRule

PRESETS = Path(__file__).parent / "presets"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskShare(_Part):
    """A task, the lengths in tokens it is drawn at (equally often), and its share of the
    prompts relative to the others."""

    name: str
    lengths: tuple[int, ...] = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)


class Overlong(_Part):
    """DAPO's soft overlong punishment: see `training.rl.advantages.overlong_penalty`."""

    limit: int = Field(ge=1)
    cache: int = Field(ge=1)


class Validation(_Part):
    """Every `every` steps: `samples` questions of each task and length, each asked
    `samples_per_question` times. `greedy`: and once more, greedily."""

    every: int = Field(ge=1)
    samples: int = Field(ge=1)
    samples_per_question: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=0.7, gt=0, le=1)
    greedy: bool = False
    tasks: tuple[TaskShare, ...] = Field(min_length=1)


class Episodes(_Part):
    """Single turns as episodes (training/rl/episodes), beside whole rollouts.

    `whole`: share of the groups that are whole rollouts. `scouts`: so many more questions a step
    are rolled out once; nothing is learned from that rollout itself. From the turns of both the
    other groups start. `answers`: share of these that are answer turns; the others are memory
    turns. `replies`: to each prompt. `errors`: share of the memory turns drawn among those in which
    the policy erred. `cost`: of an entry that is wrong or repeated, see
    `training.rl.episodes.notes.Written.reward`. `credit`: of a memory turn's reply all tokens share
    its advantage, or each has what it changed, see `training.rl.advantages.token_advantages`.
    """

    whole: float = Field(default=0.34, ge=0, le=1)
    scouts: int = Field(default=0, ge=0)
    answers: float = Field(default=0.0, ge=0, le=1)
    replies: int = Field(default=32, ge=2)
    errors: float = Field(default=0.5, ge=0, le=1)
    cost: float = Field(default=0.5, ge=0)
    credit: Literal["reply", "prefix"] = "reply"


class Stage(_Part):
    """From step `start` (from 0) on, rollouts are drawn so."""

    start: int = Field(ge=1)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)


class RlRecipe(_Part):
    """A recipe, checked. `name` is the file's, unless that says another.

    method: the agent, its own settings behind an @, as in a suite: `memagent@answer_form=boxed`,
    `my_agents.py:MyAgent`. reward: None, or a callable of the user's own in place of the outcome
    reward: `my_rewards.py:reward`, (Sample, Trajectory) -> 0..1. Validation scores as a sweep does.
    model: a name in the catalogue, or a folder. chunk_tokens: of a chunk; reply_tokens: the
    budget of every turn's reply.
    groups: prompts a step; group_size: rollouts a prompt (G). mini_batches: optimizer updates
    a step, each on groups / mini_batches prompts. learning_rate, warmup_steps, decay_steps: see
    `rate_at`. stages: later samplings of the rollouts, see `sampling_at`.

    normalize_std, dynamic_sampling, overlong: the options of GRPO and DAPO that the papers
    here leave off. max_refills: how often dynamic sampling may draw again for a step; where even
    so fewer groups than `groups` are left, the step's rate is smaller by as much.
    episodes: single memory turns as episodes. imitation: the advantage of every reply of a group in
    which all are rewarded fully and which would else teach nothing, as an anchor; such groups fill
    no place of a step.
    alpha: weight of the trajectory's part in GRU-Mem's advantages. format: what earns its format
    reward, see `training.rl.rewards.in_format`. (Both are of method gru_mem only.)
    embeddings_rate, vectors_rate: factors on the learning rate of the embeddings (0 freezes them)
    and of the norms and biases; all others have factor 1. freeze_final_norm: the last norm, whose
    growth would only sharpen, stays as it is. decay_all: norms and biases decay like
    the matrices, as in verl. kl_metric: load the reference for the KL curve even where kl_beta
    is 0.
    most_skipped: optimizer steps in a row whose gradients are no numbers; each is skipped, so many
    end the run. keep_states: saved states that stay, beside that of the best validation.
    rollouts: all at once turn by turn (the same seeds give the same bytes), or each as fast as it
    goes, with as many requests at the engine as it takes. (`free`: not of the torch engine.)
    engine_options: vLLM's engine arguments beside those set here. tensor_parallel: GPUs of a
    replica. engine_memory: its share of a GPU's memory. engine_sleeps: it gives its memory to the
    update meanwhile (GPUs only).
    old_logprobs: pi_old as the engine sampled it, or computed again by the trainer (verl).
    importance_cap: the latter weighed by pi_old over the engine's own probability, at most this
    (None: not weighed). engine_precision: of the torch engine's matrix products, where that is not
    the learner's `precision`.
    log_rollouts: rollouts of every step that are written down in full (rollouts.jsonl).
    micro_batch_tokens: of one forward and backward. share_prefixes: pack replies to the same
    prompt behind one copy of it.
    """

    name: str
    seed: int = 0
    method: str
    model: str
    chunk_tokens: int = Field(ge=1)
    reply_tokens: int = Field(ge=1)

    reward: str | None = None
    tasks: tuple[TaskShare, ...] = Field(min_length=1)
    groups: int = Field(ge=1)
    group_size: int = Field(ge=2)
    mini_batches: int = Field(ge=1)
    steps: int = Field(ge=1)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    stages: tuple[Stage, ...] = ()

    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    decay_steps: int = Field(default=0, ge=0)
    embeddings_rate: float = Field(default=1.0, ge=0)
    vectors_rate: float = Field(default=1.0, gt=0)
    freeze_final_norm: bool = False
    weight_decay: float = Field(default=0.01, ge=0)
    decay_all: bool = False
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    clip_norm: float = Field(default=1.0, gt=0)
    most_skipped: int = Field(default=8, ge=1)

    loss: LossSettings = LossSettings()
    kl_metric: bool = False
    normalize_std: bool = False
    dynamic_sampling: bool = False
    max_refills: int = Field(default=2, ge=0)
    overlong: Overlong | None = None
    episodes: Episodes | None = None
    imitation: float = Field(default=0.0, ge=0)
    alpha: float = Field(default=0.9, ge=0, le=1)
    format: FormatRule = "paper"

    validation: Validation

    engine: Literal["torch", "vllm", "pool"]
    engine_options: dict[str, Scalar] = {}
    engine_memory: float = Field(default=0.4, gt=0, lt=1)
    engine_sleeps: bool = False
    tensor_parallel: int = Field(default=1, ge=1)
    rollouts: Literal["lockstep", "free"] = "lockstep"
    old_logprobs: Literal["engine", "trainer"]
    importance_cap: float | None = Field(default=None, ge=1)
    precision: Literal["bfloat16", "float32"]
    engine_precision: Literal["bfloat16", "float32"] | None = None
    gradient_checkpointing: bool = False
    micro_batch_tokens: int = Field(ge=1)
    share_prefixes: bool = False
    log_rollouts: int = Field(default=2, ge=0)
    save_every: int = Field(ge=1)
    keep_states: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.groups % self.mini_batches:
            raise ValueError(
                f"groups is {self.groups}, mini_batches {self.mini_batches}; expected a divisor"
            )
        if self.overlong is not None and self.overlong.cache > self.overlong.limit:
            raise ValueError(f"overlong.cache is above overlong.limit ({self.overlong.limit})")
        if self.engine == "torch" and (self.engine_options or self.tensor_parallel > 1):
            raise ValueError("the torch engine has no engine_options and no tensor_parallel")
        if self.rollouts == "free" and self.engine == "torch":
            raise ValueError("the torch engine answers in lockstep only")
        if self.rollouts == "free" and self.engine == "vllm" and self.tensor_parallel > 1:
            raise ValueError(
                "ranks that share a vLLM engine must ask it the same at once: "
                'rollouts = "lockstep", or engine = "pool"'
            )
        loss = self.loss
        if not (0 <= loss.clip_low < 1 and loss.clip_high >= 0 and loss.kl_beta >= 0):
            raise ValueError(f"loss is {loss}; expected 0 <= clip_low < 1, the others 0 or more")
        if loss.dual_clip is not None and loss.dual_clip <= 1:
            raise ValueError(f"loss.dual_clip is {loss.dual_clip}; expected above 1")
        if self.episodes is not None and self.whole_groups + self.episodes.scouts < 1:
            raise ValueError(
                f"episodes.whole is {self.episodes.whole} of {self.groups} groups; expected at "
                "least one, or scouts, from which the others start"
            )
        if self.importance_cap is not None and self.old_logprobs != "trainer":
            raise ValueError('importance_cap needs old_logprobs = "trainer"')
        if self.engine_precision is not None and self.engine != "torch":
            raise ValueError("engine_precision is of the torch engine; others have engine_options")
        starts = [stage.start for stage in self.stages]
        if starts != sorted(set(starts)):
            raise ValueError(f"stages start at {starts}; expected each after the one before")
        return self

    @property
    def gated(self) -> bool:
        """Whether the agent is GRU-Mem, which has rewards of its own."""
        return base_of(self.method) == "gru_mem"

    def sampling_at(self, step: int) -> Sampling:
        """How the rollouts of a step (from 0) are drawn."""
        now = [stage for stage in self.stages if stage.start <= step]
        drawn = now[-1] if now else self
        return Sampling(temperature=drawn.temperature, top_p=drawn.top_p)

    @property
    def samplings(self) -> list[Sampling]:
        """All that the run goes through."""
        return [self.sampling_at(step) for step in (0, *(stage.start for stage in self.stages))]

    @property
    def whole_groups(self) -> int:
        """The groups of a step that are whole rollouts."""
        share = 1.0 if self.episodes is None else self.episodes.whole
        return round(share * self.groups)

    @property
    def answer_groups(self) -> int:
        """The groups of a step that are answer turns."""
        share = 0.0 if self.episodes is None else self.episodes.answers
        return round(share * (self.groups - self.whole_groups))

    def share_of(self, groups: int) -> float:
        """Of the rate, for a step that so many groups are left to learn from."""
        return min(1.0, groups / self.groups) if self.dynamic_sampling else 1.0

    def rate_at(self, step: int) -> float:
        """Learning rate of all updates of a step (from 0): linear warm-up, then constant, falling
        to nothing over the last `decay_steps`. The first step and the last still move (verl's
        starts from a rate of 0)."""
        rise = (step + 1) / self.warmup_steps if self.warmup_steps else 1.0
        fall = (self.steps - step) / self.decay_steps if self.decay_steps else 1.0
        return self.learning_rate * min(1.0, rise, fall)


def rl_preset_names() -> list[str]:
    """Names of the recipes that come with the project."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_rl_recipe(name_or_path: str | Path) -> RlRecipe:
    """Reads a preset by name, or a recipe from a path that ends in .toml, or in .json as a
    checkpoint has it.

    Raises:
        UsageError: no such recipe, or a file that is not one; names the line or field.
    """
    path = _path_of(str(name_or_path), beside=Path())
    return checked(RlRecipe, {"name": path.stem, **_read(path, ())}, str(path))


def recipe_json(recipe: RlRecipe) -> str:
    """The recipe in full, as JSON; `RlRecipe.model_validate_json` reads it back."""
    return recipe.model_dump_json(indent=1) + "\n"


def _path_of(name: str, beside: Path) -> Path:
    is_path = name.endswith((".toml", ".json"))
    path = beside / name if is_path else PRESETS / f"{name}.toml"
    if not path.is_file():
        known = not_known(name, rl_preset_names())
        raise UsageError(f"recipe {known}; or give a path that ends in .toml or .json")
    return path


def _read(path: Path, extended_by: tuple[Path, ...]) -> dict[str, Any]:
    """The file's fields, laid over those of the recipe that it extends."""
    if path.resolve() in extended_by:
        raise UsageError(f"{path}: extends itself, through {len(extended_by)} files")
    read = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        fields: dict[str, Any] = read(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of both
        raise UsageError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from error
    base = fields.pop("extends", None)
    if base is None:
        return fields
    return _merged(_read(_path_of(str(base), path.parent), (*extended_by, path.resolve())), fields)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(below, value)
        merged[key] = value
    return merged
