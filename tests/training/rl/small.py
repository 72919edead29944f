"""A small model and conversations as rollouts give them, for the tests of the update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from training.rl.learner.protocol import Conversation
from training.rl.loss import LossSettings
from training.rl.recipe import RlRecipe, TaskShare, Validation

VOCABULARY = 53


def small_model(*, key_heads: int = 2, tied: bool = False, seed: int = 0) -> Qwen2ForCausalLM:
    """Random weights, spread out so that a wrong position or mask shows in the logits."""
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=key_heads,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=3,
            pad_token_id=0,
        )
    ).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            weight.copy_(1 + 0.1 * noise if "norm" in name else 0.25 * noise)
    return model


def groups_of(
    count: int, *, size: int = 4, turns: int = 2, longest: int = 20, seed: int = 0
) -> list[list[Conversation]]:
    """Groups of `size` rollouts of `turns` turns each. A group's first prompt is shared; of its
    replies some are alike, some begin alike, and some have one token."""
    rng = np.random.default_rng(seed)

    def ids(most: int, least: int = 1) -> tuple[int, ...]:
        return tuple(rng.integers(4, VOCABULARY, size=rng.integers(least, most + 1)).tolist())

    groups = []
    for _ in range(count):
        first, usual = ids(longest, least=3), ids(8, least=4)
        group = []
        for rollout in range(size):
            advantage = float(rng.normal())
            for turn in range(turns):
                prompt = first if turn == 0 else ids(longest)
                choices = (usual, usual[:2] + ids(6), ids(1), ids(9))
                reply = choices[(rollout + turn) % len(choices)]
                old = tuple((-rng.exponential(3.0, size=len(reply))).tolist())
                group.append(Conversation(prompt, reply, (advantage,) * len(reply), old))
        groups.append(group)
    return groups


def read_state(out: Path) -> dict[str, Tensor]:
    """The tensors of the newest state in a run's folder, each rank's rows one below the other;
    empty where there is none."""
    found = sorted((out / "states").glob("step-????????"))
    if not found:
        return {}
    ranks = [load_file(path) for path in sorted(found[-1].glob("*.safetensors"))]
    return {
        name: torch.cat([one[name] for one in ranks if name in one]) if tensor.ndim else tensor
        for name, tensor in ranks[0].items()
    }


def flat(groups: Sequence[Sequence[Conversation]]) -> list[Conversation]:
    return [one for group in groups for one in group]


def plain_logprobs(
    model: Qwen2ForCausalLM, one: Conversation, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy at each reply token, by transformers' own forward."""
    ids_1T = torch.tensor([one.prompt + one.reply])
    logits_TV = model(input_ids=ids_1T).logits[0, len(one.prompt) - 1 : -1] / temperature
    logprobs_TV = logits_TV.log_softmax(-1)
    chosen_T = logprobs_TV.gather(-1, torch.tensor(one.reply)[:, None])[:, 0]
    return chosen_T, -(logprobs_TV.exp() * logprobs_TV).sum(-1)


def small_recipe(**changes: object) -> RlRecipe:
    """A recipe whose update fits the small model."""
    task = TaskShare(name="niah_single_1", lengths=(256,))
    fields: dict[str, object] = {
        "name": "small",
        "method": "memagent",
        "model": "none",
        "chunk_tokens": 64,
        "reply_tokens": 8,
        "tasks": (task,),
        "groups": 4,
        "group_size": 4,
        "mini_batches": 1,
        "steps": 2,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "weight_decay": 0.1,
        "clip_norm": 0.5,
        "loss": LossSettings(clip_low=0.2, clip_high=0.28, kl_beta=0.05),
        "validation": Validation(every=1, samples=1, tasks=(task,)),
        "engine": "torch",
        "old_logprobs": "engine",
        "precision": "float32",
        "micro_batch_tokens": 96,
        "share_prefixes": True,
        "save_every": 1,
    }
    return RlRecipe.model_validate(fields | changes)
