"""The sizes of Qwen2 and Llama models that decide what a token costs: operations and bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that decide its operations. `kv_heads` is below `heads` where
    queries share keys and values; `hidden` and `intermediate` are widths."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def layer_weights(self) -> int:
        """Weights of all layers that a token is multiplied with: three matrices of the MLP, and
        those of queries, keys, values and outputs."""
        attention = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
        return self.layers * self.hidden * (3 * self.intermediate + attention)

    @property
    def head_weights(self) -> int:
        """Weights from the last hidden state to the logits, tied to the embedding or not."""
        return self.vocabulary * self.hidden


def _qwen(layers: int, hidden: int, intermediate: int, heads: int, kv: int, words: int) -> Shape:
    return Shape(layers, hidden, intermediate, heads, kv, 128, words)


_3B = _qwen(36, 2048, 11008, 16, 2, 151_936)
_7B = _qwen(28, 3584, 18944, 28, 4, 152_064)
_14B = _qwen(48, 5120, 13824, 40, 8, 152_064)
_32B = _qwen(64, 5120, 27648, 40, 8, 152_064)

SHAPES: Mapping[str, Shape] = {
    "Qwen/Qwen2.5-3B-Instruct": _3B,
    "Qwen/Qwen2.5-7B": _7B,
    "Qwen/Qwen2.5-7B-Instruct": _7B,
    "Qwen/Qwen2.5-14B-Instruct": _14B,
    "Qwen/Qwen2.5-32B-Instruct": _32B,
    "Qwen/Qwen2.5-7B-Instruct-1M": _7B,
    "Qwen/Qwen2.5-14B-Instruct-1M": _14B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": _14B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _32B,
    "Tongyi-Zhiwen/QwenLong-L1-32B": _32B,
    "BytedTsinghua-SIA/RL-MemoryAgent-7B": _7B,
    "BytedTsinghua-SIA/RL-MemoryAgent-14B": _14B,
    # One's own, as the presets of training/rl/ write them
    "./results/train/memagent-7b": _7B,
    "./results/train/memagent-3b": _3B,
    "./results/train/grumem": _7B,
    "./results/train/grumem-3b": _3B,
}
"""A model's source -> the sizes of its public config.json, so that nothing needs the network."""


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """The sizes from a Qwen2 or Llama config.json.

    Raises:
        UsageError: a size is missing.
    """
    try:
        heads = int(config["num_attention_heads"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            vocabulary=int(config["vocab_size"]),
        )
    except KeyError as error:
        raise UsageError(
            f"config.json: no {error}; FLOPs are known for Qwen2 and Llama configs, which have it"
        ) from error


def find_shape(source: str | None, root: Path) -> Shape | None:
    """The sizes of a model by what a run calls its source, a hub id or a folder under `root`;
    None where they are not known."""
    if source is None:
        return None
    config = root / source / "config.json"
    if config.is_file():
        return shape_of_config(json.loads(config.read_text(encoding="utf-8")))
    return SHAPES.get(source)


def square_flops(shape: Shape) -> int:
    """Operations of attention for each pair of tokens: scores and weighted values, all layers."""
    return 4 * shape.layers * shape.heads * shape.head_dim
