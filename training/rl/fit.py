"""Memory that a recipe takes of each GPU, by calculation; a machine that has less is refused.

The learner's part, on N ranks that share everything out (FSDP2), for a model of W weights:

    state        float32 weights, their gradients and AdamW's two moments: 16 W / N
    reference    frozen, in the recipe's precision: 2 W / N in bfloat16, 4 W / N in float32
    gathered     what a rank holds whole for a while: embedding and output matrix of the policy and
                 of the reference in the precision they compute in, their gradient in that and in
                 float32 while it is reduced, and two layers
    activations  with gradient checkpointing one float32 hidden state a token and layer, and one
                 layer's own; else every layer's own
    logits       of a slice of reply tokens, float32: as they are, as probabilities, as gradients

The engine's part is the share of the GPU that the recipe gives it: its bfloat16 weights must fit
there beside `LEAST_CACHE_TURNS` turns of keys and values. While it sleeps, the update has that
share too; what the learner keeps (state, reference) stays while the engine answers. One process on
a CPU takes the same of the machine's memory, for all ranks together.

Left out: CUDA's own context and fragmentation, `OVERHEAD_BYTES`, and vLLM's graphs. Compared with
hand-computed numbers in tests/training/rl/test_fit.py; not with a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.arithmetic.shapes import Shape
from core.errors import UsageError
from training.rl.learner.policy import SLICE
from training.rl.recipe import RlRecipe

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""
STATE_NUMBERS = 4
"""Of a weight: itself, its gradient, AdamW's two moments."""
LEAST_CACHE_TURNS = 8
"""Whole turns whose keys and values an engine must hold, to be worth its GPU."""
OVERHEAD_BYTES = 2e9


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU. `learner` and `engine`: parts by their names. `kept`: of the learner's,
    what stays while the engine answers. `engine_share`: what the recipe gives the engine."""

    learner: Mapping[str, float]
    engine: Mapping[str, float]
    kept: float
    engine_share: float
    sleeps: bool

    @property
    def update(self) -> float:
        """While the policy learns."""
        own = sum(self.learner.values())
        return own if self.sleeps else own + self.engine_share

    @property
    def rollout(self) -> float:
        """While the engine answers."""
        return self.kept + self.engine_share

    @property
    def most(self) -> float:
        """The larger of the two."""
        return max(self.update, self.rollout)

    def lines(self) -> list[str]:
        """In words, GB by part."""
        named = {**self.learner, **{f"engine's {name}": n for name, n in self.engine.items()}}
        return [f"{name} {size / 1e9:.1f}" for name, size in named.items()]


def memory_of(recipe: RlRecipe, shape: Shape, ranks: int, gpu_bytes: float) -> Memory:
    """What the recipe takes of each of `ranks` GPUs of so many bytes."""
    weights = shape.layer_weights + 2 * shape.head_weights
    number = BFLOAT16 if recipe.precision == "bfloat16" else FLOAT32
    has_reference = recipe.loss.kl_beta > 0 or recipe.kl_metric
    state = STATE_NUMBERS * FLOAT32 * weights / ranks
    reference = number * weights / ranks if has_reference else 0.0
    learner = {
        "state": state,
        "reference": reference,
        "gathered": _gathered(shape, number, has_reference) if ranks > 1 else 0.0,
        "activations": _activations(recipe, shape, number),
        "logits": 3.0 * FLOAT32 * min(SLICE, recipe.micro_batch_tokens) * shape.vocabulary,
        "overhead": OVERHEAD_BYTES,
    }
    engine: dict[str, float] = {}
    share = 0.0
    if recipe.engine != "torch":
        turn = recipe.chunk_tokens + 2 * recipe.reply_tokens
        cache = 2 * BFLOAT16 * shape.layers * shape.kv_heads * shape.head_dim * turn
        engine = {
            "weights": BFLOAT16 * weights / recipe.tensor_parallel,
            "least cache": LEAST_CACHE_TURNS * cache / recipe.tensor_parallel,
        }
        share = recipe.engine_memory * gpu_bytes
    return Memory(learner, engine, state + reference + OVERHEAD_BYTES, share, recipe.engine_sleeps)


def check_fits(
    recipe: RlRecipe, shape: Shape, ranks: int, gpu_bytes: float, where: str = "GPU"
) -> Memory:
    """The memory, where it is there.

    Raises:
        UsageError: it is not; says what it would take, part by part, and what would help.
    """
    memory = memory_of(recipe, shape, ranks, gpu_bytes)
    needed = sum(memory.engine.values())
    parts = f"by calculation, in GB: {', '.join(memory.lines())}"
    if needed > memory.engine_share:
        raise UsageError(
            f"recipe {recipe.name}: the engine takes {needed / 1e9:.0f} GB of each {where}, and "
            f"engine_memory = {recipe.engine_memory} gives it {memory.engine_share / 1e9:.0f} GB "
            f"of {gpu_bytes / 1e9:.0f}: {parts}. Take a larger engine_memory, with "
            "engine_sleeps = true, or a larger tensor_parallel."
        )
    if memory.most > gpu_bytes:
        when = "update" if memory.update >= memory.rollout else "rollouts"
        raise UsageError(
            f"recipe {recipe.name} on {ranks} x {gpu_bytes / 1e9:.0f} GB: the {when} would take "
            f"{memory.most / 1e9:.0f} GB of each {where}, the engine's share of "
            f"{memory.engine_share / 1e9:.0f} GB included where it is awake; {parts}. Take more "
            "--workers, engine_sleeps = true, fewer micro_batch_tokens, or larger GPUs."
        )
    return memory


def _gathered(shape: Shape, number: int, has_reference: bool) -> float:
    matrices = 2 * shape.head_weights
    layer = shape.layer_weights / shape.layers
    models = 2 if has_reference else 1
    return matrices * (number * models + number + FLOAT32) + 2 * layer * number


def _activations(recipe: RlRecipe, shape: Shape, number: int) -> float:
    """Of one micro-batch: a layer keeps its inputs and those of both norms in float32, queries,
    keys, values and what attention gives, and three widths of the MLP."""
    attention = 2 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    own = 3 * FLOAT32 * shape.hidden + number * (attention + 3 * shape.intermediate)
    kept = FLOAT32 * shape.hidden
    layers = shape.layers * kept + own if recipe.gradient_checkpointing else shape.layers * own
    return float(layers) * recipe.micro_batch_tokens
