"""A Qwen2 model whose weights start as an induction circuit, not as noise.

Copying a needle word for word is induction: find the earlier place where the last tokens
occurred, and say what came next. From random weights that circuit took tens of millions of
tokens to appear; here it is written down at the start (mimetic initialisation, after
Trockman & Kolter 2023, arXiv:2305.09828, and the induction heads of Olsson et al. 2022,
arXiv:2209.11895), and training only refines it. Nothing about it needs other than plain Qwen2:

- embeddings are random in the first half of the residual stream, the second half is empty;
- layer 0, heads 0, 1, 2 attend one, two, three tokens back, by their biases and RoPE alone,
  and write what they see into three slots of the empty half;
- layer 1, heads 0 and 1 look for the place whose slots say what this token and its two
  predecessors are, and copy the token standing there; the tied output matrix turns the copy
  into that token's logit. Head 2 looks for an earlier copy of the two tokens before this one (after
  ` wooden-table` of a needle: is that the key asked for?) and rests on the first token if there
  is none;
- all other heads and the MLPs start random and small.

The matching uses only the slowest rotary pairs, which hardly turn within the window, so
`rope_theta` is large.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM


@dataclass(frozen=True, slots=True)
class PocketShape:
    """The model's shape. `width` = 4 x 64; heads are of 64, as serving engines like them."""

    width: int = 256
    heads: int = 4
    layers: int = 4
    mlp_width: int = 512
    rope_theta: float = 1e8
    window_tokens: int = 1024


EMBED_STD = 0.08
FAST_PAIRS = 8
"""Rotary pairs 0..7 tell positions apart; pairs 12..31 match contents."""
FIRST_SLOW_PAIR = 12
OFFSET_BIAS = 12.0
COPY_GAIN = 3.0
SINK_LOGIT, SINK_GAIN = 13.0, 1.0
OFFSETS = (1.0, 2.0, 3.0, 5.5)
"""Tokens back that layer 0's heads look; the last one blurs about five tokens together."""


def pocket_config(
    shape: PocketShape, vocab: int, bos: int, eos: int, pad: int, *, dtype: str = "float32"
) -> Qwen2Config:
    """The plain Qwen2 configuration of the pocket model."""
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=shape.width,
        intermediate_size=shape.mlp_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.window_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=pad,
        dtype=dtype,
    )


def mimetic_model(config: Qwen2Config, seed: int) -> Qwen2ForCausalLM:
    """A model of `config` with the induction circuit in its first two layers, float32."""
    model = Qwen2ForCausalLM(config).float()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        _random_weights(model, random)
        half = config.hidden_size // 2
        project = _orthonormal(half // 4, half, random)
        _offset_heads(model, project)
        _matching_heads(model, project, random)
    return model


def random_model(config: Qwen2Config, seed: int) -> Qwen2ForCausalLM:
    """The same model without the circuit: the comparison."""
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        _random_weights(model, torch.Generator().manual_seed(seed))
    return model


def _normal(like: Tensor, std: float, random: torch.Generator) -> None:
    like.copy_(torch.randn(like.shape, generator=random) * std)


def _orthonormal(rows: int, columns: int, random: torch.Generator) -> Tensor:
    """[rows, columns] with orthonormal rows."""
    q, _ = torch.linalg.qr(torch.randn(columns, columns, generator=random))
    return q[:rows].contiguous()


def _random_weights(model: Qwen2ForCausalLM, random: torch.Generator) -> None:
    width = model.config.hidden_size
    embeddings = model.model.embed_tokens.weight
    _normal(embeddings, EMBED_STD, random)
    embeddings[:, width // 2 :] *= 0.05
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            _normal(linear.weight, width**-0.5, random)
            linear.bias.zero_()
        for linear in (mlp.gate_proj, mlp.up_proj):
            _normal(linear.weight, width**-0.5, random)
        for linear in (attention.o_proj, mlp.down_proj):
            _normal(linear.weight, 0.002 * width**-0.5, random)


def _offset_heads(model: Qwen2ForCausalLM, project_ED: Tensor) -> None:
    """Layer 0: heads 0..2 attend 1, 2, 3 back, head 3 a few around 5.5 back; each writes the
    projected embedding into its own eighth of the stream's second half."""
    attention = model.model.layers[0].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth = width // 2, width // 8
    angles = _angles(model.config.rope_parameters["rope_theta"], size)[:FAST_PAIRS]
    for head, offset in enumerate(OFFSETS):
        mine = slice(head * size, (head + 1) * size)
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            linear.weight[mine] = 0
        bias = torch.full((FAST_PAIRS,), OFFSET_BIAS)
        if head == len(OFFSETS) - 1:
            bias[:2] = 0  # without the two fastest pairs the peak is several tokens wide
        q_bias, k_bias = torch.zeros(size), torch.zeros(size)
        q_bias[:FAST_PAIRS] = bias
        # A key turned back by `offset` steps meets the query upright at that distance.
        k_bias[:FAST_PAIRS] = bias * torch.cos(angles * offset)
        k_bias[size // 2 : size // 2 + FAST_PAIRS] = bias * torch.sin(angles * offset)
        attention.q_proj.bias[mine], attention.k_proj.bias[mine] = q_bias, k_bias
        attention.v_proj.weight[mine.start : mine.start + eighth, :half] = project_ED
        attention.o_proj.weight[:, mine] = 0
        start = half + head * eighth
        gain = EMBED_STD / 2**0.5 * (2.0 if head == len(OFFSETS) - 1 else 1.0)
        attention.o_proj.weight[start : start + eighth, mine.start : mine.start + eighth] = (
            gain * torch.eye(eighth)
        )


def _rest_on(model: Qwen2ForCausalLM, head: int, token: int, logit: float) -> None:
    """Where a head of layer 1 finds nothing, let it rest on `token` (the first of any chat).

    What it then writes is one constant vector, and its absence says that something was found.
    """
    attention = model.model.layers[1].self_attn
    size = attention.head_dim
    mine = slice(head * size, (head + 1) * size)
    embedding = model.model.embed_tokens.weight[token]
    # Of the first token of a text, the slots hold itself or nothing; its own part counts.
    key = attention.k_proj.weight[mine] @ (embedding / embedding.pow(2).mean().sqrt())
    attention.q_proj.bias[mine] += logit * size**0.5 * key / key.pow(2).sum()


def _angles(theta: float, size: int) -> Tensor:
    """Radians per token of each rotary pair, [size / 2]."""
    return theta ** (-torch.arange(0, size, 2).float() / size)


def _matching_heads(model: Qwen2ForCausalLM, project_ED: Tensor, random: torch.Generator) -> None:
    """Layer 1, heads 0, 1: induction. Head 2: did the last two tokens occur before?"""
    attention = model.model.layers[1].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth = width // 2, width // 8
    token = torch.zeros(eighth, width)
    token[:, :half] = project_ED
    slot = torch.zeros(len(OFFSETS), eighth, width)
    for index in range(len(OFFSETS)):
        start = half + index * eighth
        slot[index, :, start : start + eighth] = torch.eye(eighth)
    slow = [*range(FIRST_SLOW_PAIR, size // 2), *range(size // 2 + FIRST_SLOW_PAIR, size)]
    basis = _orthonormal(half, half, random)
    induction = (
        (token, slot[0], 16, 10.0),
        (slot[0], slot[1], 10, 7.0),
        (slot[1], slot[2], 6, 4.0),
        (slot[3], slot[3], 8, 4.0),
    )
    repeated = ((slot[0], token, 24, 10.0), (slot[1], slot[0], 16, 10.0))
    for head, plan in enumerate((induction, induction, repeated)):
        mine = slice(head * size, (head + 1) * size)
        q, k = torch.zeros(size, width), torch.zeros(size, width)
        at = 0
        for asks, holds, rows, logit in plan:
            match = _orthonormal(rows, eighth, random) * (logit * size**0.5 / rows) ** 0.5
            q[slow[at : at + rows]], k[slow[at : at + rows]] = match @ asks, match @ holds
            at += rows
        attention.q_proj.weight[mine], attention.k_proj.weight[mine] = q, k
        if plan is repeated:
            attention.q_proj.bias[mine][:FAST_PAIRS] = 4.0
            attention.k_proj.bias[mine][:FAST_PAIRS] = -4.0
            _rest_on(model, head, model.config.bos_token_id, SINK_LOGIT)
            _normal(attention.o_proj.weight[:, mine], SINK_GAIN * EMBED_STD / 8, random)
            continue
        values = basis[head * size : (head + 1) * size]
        attention.v_proj.weight[mine] = 0
        attention.v_proj.weight[mine, :half] = values
        attention.o_proj.weight[:, mine] = 0
        attention.o_proj.weight[:half, mine] = COPY_GAIN * EMBED_STD * values.T
