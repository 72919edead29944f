"""A checkpoint of random weights with the pocket's tokenizer, and a recipe that trains it in a
second: for the tests of the loop and its commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.types import Sample, Trajectory
from training.rl.recipe import RlRecipe, TaskShare, Validation
from training.rl.run import TOKENIZER_FILES
from training.state import save_checkpoint

POCKET = Path(__file__).parents[3] / "checkpoints" / "pocket-base"


def tiny_model(*, tied: bool = True, **shape: int) -> Qwen2ForCausalLM:
    """Two layers of width 32, and the pocket's vocabulary: its prompts are few tokens of that.
    `shape` changes Qwen2Config's numbers."""
    config = json.loads((POCKET / "config.json").read_text())
    numbers = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
    }
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=config["vocab_size"],
            **numbers | shape,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=config["eos_token_id"],
            pad_token_id=config["pad_token_id"],
        )
    )


def write_tiny_checkpoint(folder: Path, **shape: int) -> Path:
    """The tiny model, or one of another `shape`, as a checkpoint holds it."""
    folder.mkdir()
    save_checkpoint(tiny_model(**shape), folder)
    for name in TOKENIZER_FILES:
        shutil.copyfile(POCKET / name, folder / name)
    return folder


def tiny_recipe(model: Path, **changes: object) -> RlRecipe:
    """Two questions a step, two rollouts each, of two chunks and an answer."""
    task = TaskShare(name="niah_single_1", lengths=(384,))
    fields: dict[str, object] = {
        "name": "tiny",
        "seed": 3,
        "method": "memagent",
        "model": str(model),
        "chunk_tokens": 128,
        "reply_tokens": 4,
        "tasks": (task,),
        "groups": 2,
        "group_size": 2,
        "mini_batches": 1,
        "steps": 3,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "validation": Validation(every=2, samples=1, tasks=(task,)),
        "engine": "torch",
        "old_logprobs": "engine",
        "precision": "float32",
        "micro_batch_tokens": 512,
        "share_prefixes": True,
        "save_every": 1,
    }
    return RlRecipe.model_validate(fields | changes)


def by_chance(sample: Sample, trajectory: Trajectory) -> float:
    """A reward that random weights earn half of the time, the same for the same replies."""
    return float(sum(sum(turn.reply_ids or ()) for turn in trajectory.turns) % 2)
