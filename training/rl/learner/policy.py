"""The policy's log-probabilities at the reply tokens of a micro-batch, and nowhere else.

The last layer's queries and MLP and the output matrix are computed only at the places that a
reply token is predicted from; every other layer wherever there is a token. Replies to one prompt
stand in one row and do not see each other (packing.py): `shared_prefix_attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, Qwen2ForCausalLM

from training.rl.learner.packing import MicroBatch
from training.rl.loss import entropy_N, token_logprobs
from training.warmstart.batches import layer_at, places_of_replies

ATTENTION = "shared_prefix"
"""The attention that models scored here must be loaded with (`attn_implementation`)."""
SLICE = 4096
"""Reply tokens whose logits are held at once; of more, each slice's are made again on the way
back, since a large vocabulary times many tokens is what fills a card first."""


def score_replies(
    model: Qwen2ForCausalLM,
    batch: MicroBatch,
    *,
    temperature: float = 1.0,
    gradient_checkpointing: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each different reply token, and the entropy there: [U] each, float32.

    `gradient_checkpointing` keeps one hidden state a layer and computes the rest again on the
    way back.
    """
    if isinstance(model, FSDPModule):  # its weights are whole within its own methods alone
        return model.scores(  # type: ignore[no-any-return]
            batch, temperature=temperature, gradient_checkpointing=gradient_checkpointing
        )
    return scores(
        model, batch, temperature=temperature, gradient_checkpointing=gradient_checkpointing
    )


def scores(
    model: Qwen2ForCausalLM, batch: MicroBatch, *, temperature: float, gradient_checkpointing: bool
) -> tuple[Tensor, Tensor]:
    """What `score_replies` returns, for a model whose own weights (not its layers') are whole."""
    hidden_UD = reply_hidden(model, batch, gradient_checkpointing=gradient_checkpointing)

    def scored(part_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        logits_NV = model.lm_head(part_ND)
        with torch.no_grad():
            entropies_N = entropy_N(logits_NV, temperature=temperature)
        return token_logprobs(logits_NV, targets_N, temperature=temperature), entropies_N

    if len(hidden_UD) <= SLICE:
        return scored(hidden_UD, batch.targets_U)
    parts = [
        checkpoint(scored, part_ND, targets_N, use_reentrant=False)
        for part_ND, targets_N in zip(
            hidden_UD.split(SLICE), batch.targets_U.split(SLICE), strict=True
        )
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def reply_hidden(
    model: Qwen2ForCausalLM, batch: MicroBatch, *, gradient_checkpointing: bool = False
) -> Tensor:
    """The normed last hidden states that the U reply tokens are predicted from, [U, D]."""
    body = model.model
    hidden_BTD = body.embed_tokens(batch.ids_BT)
    if torch.is_autocast_enabled(hidden_BTD.device.type):
        hidden_BTD = hidden_BTD.float()  # the residual stream; FSDP gathers weights in bfloat16
    turns = body.rotary_emb(hidden_BTD, batch.positions_BT)
    branches = _branches(batch, hidden_BTD) if batch.branched else None

    def through(layer: nn.Module, states_BTD: Tensor) -> Tensor:
        out: Tensor = layer(states_BTD, attention_mask=branches, position_embeddings=turns)
        return out

    sharded = isinstance(body.layers[0], FSDPModule)
    for layer in body.layers if sharded else body.layers[:-1]:
        if gradient_checkpointing:
            hidden_BTD = checkpoint(through, layer, hidden_BTD, use_reentrant=False)
        else:
            hidden_BTD = through(layer, hidden_BTD)
    if sharded:  # a sharded layer gathers its weights in its own forward, nowhere else
        return body.norm(hidden_BTD[batch.rows_U, batch.columns_U])
    places_BR, index_U = places_of_replies(batch.rows_U, batch.columns_U, len(batch.ids_BT))
    seen_B1RT = seen(batch, places_BR)
    last_BRD = layer_at(body.layers[-1], hidden_BTD, turns, places_BR, seen_B1RT)
    return body.norm(last_BRD[batch.rows_U, index_U])


def seen(batch: MicroBatch, places_BR: Tensor) -> Tensor:
    """Which places (last axis) each of `places_BR` sees: earlier ones and itself, of the prompt
    and of the same reply; bool [B, 1, R, T]."""
    columns_T = torch.arange(batch.ids_BT.shape[1], device=batch.ids_BT.device)
    own_BR1 = batch.segments_BT.gather(1, places_BR)[..., None]
    keys_B1T = batch.segments_BT[:, None, :]
    within_BRT = (keys_B1T == 0) | (keys_B1T == own_BR1)
    return (within_BRT & (columns_T <= places_BR[..., None]))[:, None]


@dataclass(frozen=True, slots=True)
class Branches:
    """The places of second and later replies, whose attention plain causality gets wrong.

    places_BR: as a rectangle (short rows repeat place 0); bias_B1RT: 0 where such a place sees,
    -inf elsewhere; rows_K, columns_K, index_K: row, place, and column in the rectangle of each.
    """

    places_BR: Tensor  # noqa: N815
    bias_B1RT: Tensor  # noqa: N815
    rows_K: Tensor  # noqa: N815
    columns_K: Tensor  # noqa: N815
    index_K: Tensor  # noqa: N815


def _branches(batch: MicroBatch, like: Tensor) -> Branches:
    rows_K, columns_K = (batch.segments_BT > 1).nonzero(as_tuple=True)
    places_BR, index_K = places_of_replies(rows_K, columns_K, len(batch.ids_BT))
    device = like.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    seen_B1RT = seen(batch, places_BR)
    bias_B1RT = torch.zeros(seen_B1RT.shape, dtype=dtype, device=like.device)
    bias_B1RT.masked_fill_(~seen_B1RT, float("-inf"))
    return Branches(places_BR, bias_B1RT, rows_K, columns_K, index_K)


def shared_prefix_attention(
    module: nn.Module,
    query_BHTE: Tensor,
    key_BGTE: Tensor,
    value_BGTE: Tensor,
    attention_mask: Branches | None,
    *,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: causal, then done again under a mask for the few
    places of `attention_mask`. A mask over all places would cost half as much again.

    Returns [B, T, H, E].
    """
    grouped = key_BGTE.shape[1] != query_BHTE.shape[1]
    attend = partial(nn.functional.scaled_dot_product_attention, scale=scaling, enable_gqa=grouped)
    out_BTHE = attend(query_BHTE, key_BGTE, value_BGTE, is_causal=True).transpose(1, 2)
    if attention_mask is None:
        return out_BTHE, None
    at = attention_mask
    index = at.places_BR[:, None, :, None].expand(-1, query_BHTE.shape[1], -1, query_BHTE.shape[3])
    branch_BRHE = attend(
        query_BHTE.gather(2, index), key_BGTE, value_BGTE, attn_mask=at.bias_B1RT
    ).transpose(1, 2)
    places = (at.rows_K, at.columns_K)
    return out_BTHE.index_put(places, branch_BRHE[at.rows_K, at.index_K]), None


AttentionInterface.register(ATTENTION, shared_prefix_attention)
