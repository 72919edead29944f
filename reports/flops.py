"""Floating point operations of Qwen2 and Llama models, in two counts.

`published`: the count behind MemAgent's Figure 7, verl's estimate for Qwen2. A token costs 6 x
(layers x (3 h i + h (q + k + v + o)) + 2 V h) and a sequence 12 x tokens^2 x head_dim x heads x
layers. Of its 2 V h only one half is a product of matrices, the head's; the other is the look-up
of the embedding, which costs nothing (6% too much for 7B at 8K).

`exact`: the same without the look-up, equal to what torch.utils.flop_counter sees. It can leave
out the head of tokens whose logits nobody needs, as an engine does with a prompt.

Both count a multiplication and an addition as two operations, attention as the whole square (a
causal kernel may skip up to half of it), and a training step as three forward passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.errors import UsageError

Count = Literal["published", "exact"]
Work = Literal["forward", "training"]

PASSES: Mapping[Work, int] = {"forward": 1, "training": 3}
"""A backward pass takes the gradients of inputs and of weights: two products for each one."""

QUESTION_TOKENS, REPLY_TOKENS, CHUNK_TOKENS = 1_024, 1_024, 5_000
UPDATE_PROMPT_TOKENS, ANSWER_PROMPT_TOKENS = 200, 100
"""What MemAgent's Figure 7 takes for a question, a reply, a chunk and its two prompts."""


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
}
"""Hub id -> the sizes of its public config.json, so that no report needs the network."""


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


def sequence_flops(
    shape: Shape, tokens: int, count: Count, work: Work, logits: int | None = None
) -> int:
    """Operations of one sequence of `tokens`. `logits`: of how many tokens `exact` counts the
    head, of all if None; `published` always has all."""
    head_tokens = tokens if logits is None or count == "published" else logits
    heads = 2 if count == "published" else 1  # the look-up counts as one more
    products = shape.layer_weights * tokens + heads * shape.head_weights * head_tokens
    return PASSES[work] * (2 * products + square_flops(shape) * tokens**2)


def square_flops(shape: Shape) -> int:
    """Operations of attention for each pair of tokens: scores and weighted values, all layers."""
    return 4 * shape.layers * shape.heads * shape.head_dim


def sample_flops(shape: Shape, tokens: float, replied: float, squares: float) -> float:
    """Operations of a rollout as measured (`exact`, forward), from the sums over its turns: all
    tokens, those of the replies, and the squares of each turn's tokens. Every turn counts in
    full, also what a server's prefix cache spared."""
    products = shape.layer_weights * tokens + shape.head_weights * replied
    return 2 * products + square_flops(shape) * squares


def full_context_flops(shape: Shape, context: int) -> int:
    """Figure 7's baseline (`published`, training): question, context and reply as one sequence."""
    tokens = QUESTION_TOKENS + context + REPLY_TOKENS
    return sequence_flops(shape, tokens, "published", "training")


def memagent_flops(shape: Shape, context: int) -> int:
    """Figure 7's agent (`published`, training): a sequence to begin with, one a chunk, one for
    the answer."""
    rest = QUESTION_TOKENS + REPLY_TOKENS
    first, last = rest + UPDATE_PROMPT_TOKENS, rest + ANSWER_PROMPT_TOKENS

    def flops(tokens: int) -> int:
        return sequence_flops(shape, tokens, "published", "training")

    chunks = -(-context // CHUNK_TOKENS)
    return flops(first) + chunks * flops(first + CHUNK_TOKENS) + flops(last)
