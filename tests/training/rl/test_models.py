"""Policy and reference from a checkpoint's files, in one process: as transformers loads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen2ForCausalLM

from core.errors import UsageError
from tests.training.rl.small import small_model, small_recipe
from training.rl.learner.models import load_models, model_of_sizes
from training.state import save_checkpoint

CPU = torch.device("cpu")
IDS_1T = torch.arange(4, 44)[None]


def write(folder: Path, *, tied: bool = False, **config: object) -> Path:
    save_checkpoint(small_model(tied=tied), folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | config))
    return folder


YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("config", [{}, {"rope_parameters": YARN}], ids=["plain", "yarn"])
def test_models_are_those_that_transformers_loads(
    tmp_path: Path, tied: bool, config: dict[str, object]
) -> None:
    folder = write(tmp_path, tied=tied, **config)
    recipe = small_recipe(precision="bfloat16")
    policy, reference = load_models(recipe, folder, CPU)
    assert reference is not None
    for model, dtype in ((policy, torch.float32), (reference, torch.bfloat16)):
        expected = Qwen2ForCausalLM.from_pretrained(folder, dtype=dtype)
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
        assert {name for name, _ in model.named_parameters()} == {
            name for name, _ in expected.named_parameters()
        }
        assert model.generation_config.to_dict() == expected.generation_config.to_dict()
        with torch.no_grad():
            assert torch.equal(model(IDS_1T).logits, expected(IDS_1T).logits)
    assert all(weight.requires_grad for weight in policy.parameters())
    assert not any(weight.requires_grad for weight in reference.parameters())


def test_sizes_alone_take_no_memory(tmp_path: Path) -> None:
    sizes = model_of_sizes(write(tmp_path))
    assert all(one.is_meta for one in (*sizes.parameters(), *sizes.buffers()))


def test_a_config_that_is_not_the_weights_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, intermediate_size=64)
    with pytest.raises(UsageError, match=r"one of shape \[48, 32\] called .*\[64, 32\]"):
        load_models(small_recipe(), folder, CPU)
