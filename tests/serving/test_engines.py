"""Every entry of the catalogue against the config classes of vLLM and Ray, as far as they go
without a GPU: the engine's arguments exist, fit the model's config and its heads, and so many
replicas fit 1 x 8 and 4 x 8 GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.arithmetic.shapes import SHAPES
from serving.app import engine_arguments
from serving.catalogue import ModelEntry, load_catalogue
from serving.placement import Layout, Node, bundles, plan_layout

ENTRIES = {name: entry for name, entry in load_catalogue().items() if entry.cpu is None}
TIED = ("Qwen/Qwen2.5-3B-Instruct", "./results/train/memagent-3b", "./results/train/grumem-3b")
OF_1M = {"max_position_embeddings": 1_010_000, "rope_theta": 10_000_000.0}
DUAL_CHUNKS = {
    "chunk_size": 262_144,
    "local_size": 8_192,
    "original_max_position_embeddings": 262_144,
}


def write_config(entry: ModelEntry, folder: Path) -> Path:
    """A config.json with what engines read of the model's public one; the downloaded decides."""
    shape = SHAPES[entry.source]
    config: dict[str, Any] = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": entry.source in TIED,
        "torch_dtype": "bfloat16",
    }
    if entry.source.endswith("-1M"):
        config |= {**OF_1M, "dual_chunk_attention_config": DUAL_CHUNKS}
    if "R1-Distill" in entry.source or "QwenLong" in entry.source:
        config["max_position_embeddings"] = 131_072
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_every_entry_has_known_sizes() -> None:
    assert {entry.source for entry in ENTRIES.values()} <= SHAPES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_vllm_takes_the_engine_arguments(name: str, tmp_path: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    entry = ENTRIES[name]
    folder = write_config(entry, tmp_path / "model")
    arguments = engine_arguments(entry, Layout(1, on_gpu=True))
    arguments.pop("revision", None)
    arguments.pop("tokenizer_revision", None)
    engine = AsyncEngineArgs(model=str(folder), skip_tokenizer_init=True, **arguments)
    model = engine.create_model_config()
    assert model.max_model_len == entry.window_tokens
    shape = SHAPES[entry.source]
    workers = entry.tensor_parallel
    assert shape.heads % workers == 0
    assert shape.kv_heads % workers == 0 or workers % shape.kv_heads == 0
    config = model.hf_config
    rope = config.rope_parameters
    assert rope["rope_type"] == ("yarn" if entry.hf_overrides else "default")
    assert not getattr(config, "dual_chunk_attention_config", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_ray_takes_the_settings_of_a_replica(name: str, tmp_path: Path) -> None:
    from ray.serve.llm import LLMConfig

    from serving.app import _settings

    entry = ENTRIES[name]
    if entry.is_local:
        folder = write_config(entry, tmp_path / "model")
        (folder / "tokenizer.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"")
        entry = entry.with_weights(folder)
    config = LLMConfig(**_settings(entry, Layout(8, on_gpu=True), tmp_path, False, None))
    assert config.model_id == name
    assert config.engine_kwargs["tensor_parallel_size"] == entry.tensor_parallel
    assert config.placement_group_config["bundles"] == bundles(entry, on_gpu=True)


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("name", ENTRIES)
def test_replicas_fill_the_gpus_of_8_gpu_nodes(name: str, nodes: int) -> None:
    entry = ENTRIES[name]
    cluster = [Node(f"node{i}", 128, 8, 1000) for i in range(nodes)]
    layout = plan_layout(entry, cluster)
    assert layout == Layout(nodes * 8 // entry.tensor_parallel, on_gpu=True)
    assert sum(bundle["GPU"] for bundle in bundles(entry, on_gpu=True)) == entry.tensor_parallel
