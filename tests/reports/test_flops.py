"""FLOPs: the published count, and the exact one against torch's own counter."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from core.arithmetic.shapes import SHAPES, find_shape, shape_of_config
from core.errors import UsageError
from reports.flops import full_context_flops, memagent_flops, sample_flops, sequence_flops

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "flops.csv"
SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 300}
MODELS = {
    "qwen2, grouped heads": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_attention_heads=8, num_key_value_heads=2)
    ),
    "qwen2, tied": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True)
    ),
    "llama, heads wider than their share, untied": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=24,
            tie_word_embeddings=False,
        )
    ),
}


@pytest.mark.parametrize("context", [8_192, 131_072, 4_194_304])
def test_figure_7_is_counted_as_published(context: int) -> None:
    # By hand for 7B: 28 x (3 x 3584 x 18944 + 3584 x (2 x 3584 + 2 x 512)) + 2 x 152064 x 3584.
    weights = 28 * (3 * 3584 * 18944 + 3584 * (2 * 3584 + 2 * 512)) + 2 * 152_064 * 3584
    tokens = context + 2048
    by_hand = 6 * weights * tokens + 12 * tokens**2 * 128 * 28 * 28
    assert full_context_flops(SHAPES["Qwen/Qwen2.5-7B"], context) == by_hand


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the golden cases are no part of the project")
def test_every_golden_row_is_met() -> None:
    names = {"Qwen2.5-7B": "Qwen/Qwen2.5-7B", "Qwen2.5-14B": "Qwen/Qwen2.5-14B-Instruct"}
    with GOLDEN.open(newline="") as file:
        for row in csv.DictReader(file):
            shape, context = SHAPES[names[row["model"]]], int(row["context_tokens"])
            baseline, agent = full_context_flops(shape, context), memagent_flops(shape, context)
            assert f"{baseline:.6e}" == row["full_context_flops"]
            assert f"{agent:.6e}" == row["memagent_flops"]


@pytest.mark.parametrize("name", MODELS)
def test_exact_is_what_torch_counts(name: str) -> None:
    model = MODELS[name]()
    model.set_attn_implementation("eager")  # the counter does not know the CPU's fused kernel
    shape = shape_of_config(model.config.to_dict())
    ids = torch.randint(0, 300, (1, 96))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(ids)
    counted = sequence_flops(shape, 96, "exact", "forward")
    assert counted == pytest.approx(forward.get_total_flops(), rel=0.01)
    with FlopCounterMode(display=False) as one_logit, torch.no_grad():
        model(ids, logits_to_keep=1)
    counted = sequence_flops(shape, 96, "exact", "forward", logits=1)
    assert counted == pytest.approx(one_logit.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_three_forward_passes(name: str) -> None:
    model = MODELS[name]()
    model.set_attn_implementation("eager")
    shape = shape_of_config(model.config.to_dict())
    ids = torch.randint(0, 300, (1, 96))
    with FlopCounterMode(display=False) as step:
        model(ids, labels=ids).loss.backward()
    counted = sequence_flops(shape, 96, "exact", "training")
    assert counted == pytest.approx(step.get_total_flops(), rel=0.01)


def test_published_counts_the_look_up_and_exact_does_not() -> None:
    shape = SHAPES["Qwen/Qwen2.5-7B"]
    published = sequence_flops(shape, 8_192 + 2_048, "published", "training")
    exact = sequence_flops(shape, 8_192 + 2_048, "exact", "training")
    assert published - exact == 6 * shape.head_weights * 10_240
    assert published / exact == pytest.approx(1.06, abs=0.005)
    assert sequence_flops(shape, 10_240, "published", "forward") * 3 == published


def test_a_rollout_is_the_sum_of_its_turns() -> None:
    shape = SHAPES["Qwen/Qwen2.5-3B-Instruct"]
    turns = [(5_200, 300), (5_500, 12), (400, 40)]
    one_by_one = sum(
        sequence_flops(shape, prompt + reply, "exact", "forward", logits=reply)
        for prompt, reply in turns
    )
    sums = (
        sum(p + r for p, r in turns),
        sum(r for _, r in turns),
        sum((p + r) ** 2 for p, r in turns),
    )
    assert sample_flops(shape, *sums) == one_by_one


def test_a_source_is_a_folder_or_a_known_model(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    config = json.loads((root / "checkpoints/pocket-base/config.json").read_text())
    pocket = find_shape("./checkpoints/pocket-base", root)
    assert pocket is not None
    assert pocket.hidden == config["hidden_size"]
    assert find_shape("Qwen/Qwen2.5-7B-Instruct", root) == SHAPES["Qwen/Qwen2.5-7B"]
    assert find_shape("someone/else", root) is None
    assert find_shape(None, root) is None
    with pytest.raises(UsageError, match="num_hidden_layers"):
        shape_of_config({"num_attention_heads": 4})
