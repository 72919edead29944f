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

from collections.abc import Mapping
from typing import Literal

from core.arithmetic.shapes import Shape, square_flops

Count = Literal["published", "exact"]
Work = Literal["forward", "training"]

PASSES: Mapping[Work, int] = {"forward": 1, "training": 3}
"""A backward pass takes the gradients of inputs and of weights: two products for each one."""

QUESTION_TOKENS, REPLY_TOKENS, CHUNK_TOKENS = 1_024, 1_024, 5_000
UPDATE_PROMPT_TOKENS, ANSWER_PROMPT_TOKENS = 200, 100
"""What MemAgent's Figure 7 takes for a question, a reply, a chunk and its two prompts."""


def sequence_flops(
    shape: Shape, tokens: int, count: Count, work: Work, logits: int | None = None
) -> int:
    """Operations of one sequence of `tokens`. `logits`: of how many tokens `exact` counts the
    head, of all if None; `published` always has all."""
    head_tokens = tokens if logits is None or count == "published" else logits
    heads = 2 if count == "published" else 1  # the look-up counts as one more
    products = shape.layer_weights * tokens + heads * shape.head_weights * head_tokens
    return PASSES[work] * (2 * products + square_flops(shape) * tokens**2)


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
