"""Policy and reference from a checkpoint's files, whole or sharded by PyTorch FSDP2.

    sizes (no memory) -> sharded -> memory for what this rank keeps -> its rows, from the files

so that a rank reads and holds its share of the weights, and one tensor's rows on their way.
"""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Literal

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from training.rl.learner.policy import scores
from training.rl.recipe import RlRecipe
from training.tensors import checkpoint_tensors

Precision = Literal["bfloat16", "float32"]
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def load_models(
    recipe: RlRecipe, folder: Path, where: torch.device, mesh: DeviceMesh | None = None
) -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM | None]:
    """The policy, float32, and the frozen reference in the recipe's precision, if it has one;
    sharded over the mesh, if there is one. Call on all its ranks.

    Raises:
        UsageError: the folder's files do not hold the model that its config.json describes.
    """
    policy = model_of_sizes(folder)
    if mesh is not None:
        shard(policy, mesh, recipe.precision)
    fill(policy, folder, where)
    if not (recipe.loss.kl_beta > 0 or recipe.kl_metric):
        return policy, None
    reference = model_of_sizes(folder, DTYPES[recipe.precision]).requires_grad_(False)
    if mesh is not None:
        shard(reference, mesh, "float32")  # as it is: already in the precision it computes in
    fill(reference, folder, where)
    return policy, reference


def model_of_sizes(folder: Path, dtype: torch.dtype = torch.float32) -> Qwen2ForCausalLM:
    """The checkpoint's model without its weights, on the meta device: it takes no memory, and
    cannot compute before `fill`."""
    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config.from_pretrained(folder)).to(dtype).eval()
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def allot(model: Qwen2ForCausalLM, where: torch.device) -> None:
    """Memory for a model of sizes alone, or for this rank's share of it; its numbers are anything
    but for those that its config decides."""
    model.to_empty(device=where)
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    model.model.rotary_emb = Qwen2RotaryEmbedding(model.config).to(where)  # float32 always


def fill(model: Qwen2ForCausalLM, folder: Path, where: torch.device) -> None:
    """`allot`, and the checkpoint's weights.

    Raises:
        UsageError: the folder's files do not hold them.
    """
    allot(model, where)
    with checkpoint_tensors(folder) as files, torch.no_grad():
        for name, parameter in model.named_parameters():
            files.fill(name, parameter)


def shard(model: Qwen2ForCausalLM, mesh: DeviceMesh, precision: Precision) -> None:
    """Shard the weights over the mesh, in place: a group for each layer, one for the rest.

    With bfloat16, weights are gathered in it and gradients summed in float32; what is kept, and
    the optimizer's, stays as it is. Score under autocast then, as on one device. Make the
    optimizer after this. Call on all ranks, with equal weights or none yet.
    """
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16":
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # Embedding (may be tied to the output matrix), last norm and output matrix. They are used
    # one by one within `scores`, so that is what they are gathered around, not `forward`.
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.scores = MethodType(scores, model)
    register_fsdp_forward_method(model, "scores")
