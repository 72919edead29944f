"""A step of RL on a Qwen2-shaped model far bigger than the pocket, from random weights."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tasks.corpora.read import Corpora
from tests.training.rl.tiny import by_chance, tiny_recipe, write_tiny_checkpoint
from training.rl.run import make_trainer

SHAPE_OF_HALF_A_BILLION = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
"""Qwen2.5-0.5B but for its vocabulary and its 24 layers."""


@pytest.mark.parametrize(
    ("device", "layers"),
    [
        ("cpu", 1),
        pytest.param(
            "cuda",
            24,
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        ),
    ],
)
def test_a_bigger_model_trains_a_step(
    device: str, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.rl.rewards.outcome_reward", by_chance)
    folder = write_tiny_checkpoint(
        tmp_path / "bigger", num_hidden_layers=layers, **SHAPE_OF_HALF_A_BILLION
    )
    recipe = tiny_recipe(
        folder,
        groups=4,
        group_size=4,
        precision="bfloat16",
        gradient_checkpointing=True,
        warmup_steps=0,
        learning_rate=1e-4,
    )
    trainer = make_trainer(recipe, folder, torch.device(device), Corpora(None))
    name = "model.layers.0.mlp.up_proj.weight"
    before = trainer.learner.model.state_dict()[name].clone()
    metrics = trainer.step(0)
    assert metrics["groups"] > 0
    assert metrics["gradient_norm"] > 0
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["drift"] < 0.02  # what the engine drew from is what the learner computes
    after = trainer.learner.model.state_dict()[name]
    assert after.device.type == device
    assert not torch.equal(after, before)
