"""Fixed-shape batches of demonstrations, and exact match on held-out ones.

Right-padded, so with causal attention no mask is needed. Training batch `step` is a function
of (seed, 0, step) alone, held-out demonstrations of (seed, 1, name): the streams never meet,
and a resumed run draws what an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from core.errors import UsageError
from training.warmstart.demonstrations import Demonstration, DemonstrationWriter, Kind
from training.warmstart.mimetic import (
    DOCUMENT_HEADS,
    DOCUMENT_LAYER,
    POINTER_HEADS,
    TITLE_HEADS,
    TITLE_LAYER,
    VALUE_HEADS,
    VALUE_LAYER,
)
from training.warmstart.recipe import Bucket, Stage, WarmstartRecipe
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape

TRAIN_STREAM, HELD_OUT_STREAM = 0, 1
TRIES = 50
"""Draws of a turn that fits its bucket: a memory may be longer than usual."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids and where those to be predicted are.

    ids_BT: int64. rows_N, columns_N: position of each token that is to be predicted *from*;
    targets_N: the token that should follow. N: reply tokens in the batch, and foretold ones.
    sources_4M: rows, places where a value is said next, where the section tells it, and where the
    value stands. titles_4Q: rows, places, and the first token and the end of the title or name that
    they stand behind. points_3P: rows, places where something is said next that a reply repeats,
    and where it stands (training.warmstart.points).
    """

    ids_BT: Tensor  # noqa: N815
    rows_N: Tensor  # noqa: N815
    columns_N: Tensor  # noqa: N815
    targets_N: Tensor  # noqa: N815
    sources_4M: Tensor  # noqa: N815
    titles_4Q: Tensor  # noqa: N815
    points_3P: Tensor  # noqa: N815


def collate(
    demonstrations: Sequence[Demonstration],
    tokens: int,
    pad: int,
    *,
    training: bool = False,
    absent: bool = False,
) -> Batch:
    """Pad to `tokens`. `training`: what the prompts foretell is to be predicted too, and the
    document and pointer heads are shown where to look, `absent`: also where the section does not
    tell what is looked for; held-out turns have neither.

    Raises:
        ValueError: a demonstration is longer.
    """
    ids = torch.full((len(demonstrations), tokens), pad, dtype=torch.int64)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    sources: list[tuple[int, int, int, int]] = []
    titles: list[tuple[int, int, int, int]] = []
    points: list[tuple[int, int, int]] = []
    for row, shown in enumerate(demonstrations):
        both = shown.prompt + shown.reply
        if len(both) > tokens:
            raise ValueError(f"demonstration of {len(both)} tokens in a bucket of {tokens}")
        ids[row, : len(both)] = torch.tensor(both)
        start = len(shown.prompt)
        places = [*(shown.foretold if training else ()), *range(start, len(both))]
        if training:
            sources += [(row, *source) for source in shown.sources]
            sources += [(row, *source) for source in shown.absent if absent]
            titles += [(row, *title) for title in shown.titles]
            points += [(row, said, place) for said, place in shown.points]
        rows += [row] * len(places)
        columns += [place - 1 for place in places]
        targets += [both[place] for place in places]
    return Batch(
        ids,
        torch.tensor(rows),
        torch.tensor(columns),
        torch.tensor(targets),
        torch.tensor(sources, dtype=torch.int64).reshape(-1, 4).T,
        torch.tensor(titles, dtype=torch.int64).reshape(-1, 4).T,
        torch.tensor(points, dtype=torch.int64).reshape(-1, 3).T,
    )


def _pick(weights: Sequence[float], rng: np.random.Generator) -> int:
    share = np.asarray(weights, dtype=np.float64)
    return int(rng.choice(len(share), p=share / share.sum()))


def write(
    writer: DemonstrationWriter,
    kind: Kind,
    shape: TaskShape,
    tokens: int,
    odds: Odds,
    rng: np.random.Generator,
) -> Demonstration:
    """A turn of a kind, of at most so many tokens.

    Raises:
        UsageError: none of TRIES draws fits.
    """
    for _ in range(TRIES):
        if kind in ("memory", "gru_memory"):
            shown = writer.memory_turn(shape, tokens, odds, rng, gates=kind == "gru_memory")
            if odds.again and not shown.added and rng.random() < odds.again:
                continue
        elif kind in ("answer", "gru_answer"):
            shown = writer.answer_turn(shape, rng, boxed=kind == "gru_answer")
        else:
            shown = writer.full_context(shape, tokens, odds.near, rng)
        if len(shown.prompt) + len(shown.reply) <= tokens:
            return shown
    raise UsageError(
        f"{shape.name}: no {kind} turn of at most {tokens} tokens in {TRIES} draws; the recipe's "
        "bucket is too short for it (or its least_tokens too small)"
    )


def _write(
    writer: DemonstrationWriter, bucket: Bucket, stage: Stage, rng: np.random.Generator
) -> Demonstration:
    tasks = stage.tasks_of(bucket)
    shape = tasks[_pick([task.weight for task in tasks], rng)]
    kinds = bucket.shares(shape)
    kind = [*kinds][_pick([*kinds.values()], rng)]
    return write(writer, kind, shape, bucket.tokens, stage.odds, rng)


def training_batch(
    writer: DemonstrationWriter, recipe: WarmstartRecipe, stage: Stage, step: int, pad: int
) -> Batch:
    """The batch of step `step` (from 0), which is of that stage."""
    rng = np.random.default_rng([recipe.seed, TRAIN_STREAM, step])
    bucket = stage.buckets[_pick([bucket.weight for bucket in stage.buckets], rng)]
    count = max(1, recipe.batch_tokens // bucket.tokens)
    shown = [_write(writer, bucket, stage, rng) for _ in range(count)]
    return collate(shown, bucket.tokens, pad, training=True, absent=stage.absent)


def reply_logits(model: Qwen2ForCausalLM, batch: Batch) -> Tensor:
    """Logits of the reply tokens alone, [N, vocabulary]."""
    return logits_and_looks(model, batch)[0]


def logits_and_looks(model: Qwen2ForCausalLM, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Logits of the reply tokens alone, [N, vocabulary]; and how far the title, document, value and
    pointer heads, together, are from looking where they are shown, in nats (`_looks`; None where
    nothing is shown).

    The last layer's queries and MLP, and the output matrix, are computed at the positions
    that are predicted from and nowhere else: a fifth of the work is saved, the result is the
    same as the whole model's (tests/training/test_batches.py), and so are the gradients, but for
    the output matrix (`_learning_at`).
    """
    body = model.model
    hidden_BTD = body.embed_tokens(batch.ids_BT)
    positions_1T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)[None]
    turns = body.rotary_emb(hidden_BTD, positions_1T)
    looks: list[Tensor] = []
    for index, layer in enumerate(body.layers[:-1]):
        if index == TITLE_LAYER and batch.titles_4Q.numel():
            looks.append(_looks(layer, TITLE_HEADS, hidden_BTD, turns, batch.titles_4Q))
        if index == DOCUMENT_LAYER and batch.sources_4M.numel():
            looks.append(_looks(layer, DOCUMENT_HEADS, hidden_BTD, turns, batch.sources_4M[:3]))
        if index == VALUE_LAYER and batch.sources_4M.numel():
            values_3M = batch.sources_4M[[0, 1, 3]]
            looks.append(_looks(layer, VALUE_HEADS, hidden_BTD, turns, values_3M))
        hidden_BTD = layer(
            hidden_BTD, attention_mask=None, position_ids=positions_1T, position_embeddings=turns
        )
    if batch.points_3P.numel():
        last = body.layers[-1]
        looks.append(_looks(last, POINTER_HEADS, hidden_BTD, turns, batch.points_3P))
    places_BR, index_N = places_of_replies(batch.rows_N, batch.columns_N, len(batch.ids_BT))
    last_BRD = layer_at(body.layers[-1], hidden_BTD, turns, places_BR)
    weight_VD = _learning_at(model.lm_head.weight, batch.targets_N)
    logits_NV = nn.functional.linear(body.norm(last_BRD[batch.rows_N, index_N]), weight_VD)
    return logits_NV, torch.stack(looks).sum() if looks else None


def _looks(
    layer: nn.Module,
    heads: range,
    hidden_BTD: Tensor,
    turns: tuple[Tensor, Tensor],
    shown: Tensor,
) -> Tensor:
    """Cross-entropy of some heads' attention, from each of M places, with the place that they are
    shown. `shown`: rows, these places, and the places to look at, [3, M]; or the ends as well of
    what is to be looked at, each of its tokens equally, [4, M]."""
    attention = layer.self_attn
    size: int = attention.head_dim
    mine = slice(heads.start * size, heads.stop * size)
    rows_M, froms_M, firsts_M = shown[:3]
    ends_M = shown[3] if len(shown) > 3 else firsts_M + 1
    places_BR, index_M = places_of_replies(rows_M, froms_M, len(hidden_BTD))
    normed_BTD = layer.input_layernorm(hidden_BTD)

    def turned(linear: nn.Module, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        own = nn.functional.linear(states, linear.weight[mine], linear.bias[mine])
        return _rotate(own.unflatten(-1, (-1, size)), cos, sin).transpose(1, 2)

    cos_TE, sin_TE = turns[0][0], turns[1][0]
    row_B1 = torch.arange(len(places_BR), device=places_BR.device)[:, None]
    there = cos_TE[places_BR][:, :, None], sin_TE[places_BR][:, :, None]
    queries = turned(attention.q_proj, normed_BTD[row_B1, places_BR], *there)
    keys = turned(attention.k_proj, normed_BTD, cos_TE[:, None], sin_TE[:, None])
    logits_BHRT = (queries @ keys.transpose(2, 3)).float() * size**-0.5
    logits_MHT = logits_BHRT[rows_M, :, index_M]
    places_T = torch.arange(logits_MHT.shape[-1], device=logits_MHT.device)
    logits_MHT = logits_MHT.masked_fill((places_T > froms_M[:, None])[:, None], -torch.inf)
    there_MT = (places_T >= firsts_M[:, None]) & (places_T < ends_M[:, None])
    logprobs_MHT = logits_MHT.log_softmax(-1).masked_fill(~there_MT[:, None], 0.0)
    return -(logprobs_MHT.sum(-1) / (ends_M - firsts_M)[:, None]).mean()


def _learning_at(weight_VD: Tensor, targets_N: Tensor) -> Tensor:
    """The output matrix, tied to the embeddings, with gradients for the rows of the targets alone.

    The softmax pushes all other rows away from what is said, each a little; AdamW makes whole steps
    of it, every time. A word that is rarely said then loses its direction (Gao et al. 2019,
    arXiv:1907.12009): after 2,800 steps a noun's embedding had half of its length, and nearly all
    errors of copying were nouns.
    """
    learns_V1 = torch.zeros(len(weight_VD), 1, dtype=torch.bool, device=weight_VD.device)
    learns_V1[targets_N] = True
    return torch.where(learns_V1, weight_VD, weight_VD.detach())


def places_of_replies(rows_N: Tensor, columns_N: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The predicted-from places as a rectangle, [B, R] (short rows repeat place 0), and each
    reply token's column in it, [N]. `rows_N` ascends; `rows` is B."""
    counts_B = torch.bincount(rows_N, minlength=rows)
    first_B = torch.cumsum(counts_B, 0) - counts_B
    order_N = torch.arange(len(rows_N), device=rows_N.device)
    index_N = order_N - first_B[rows_N]
    places_BR = torch.zeros(rows, int(counts_B.max()), dtype=torch.int64, device=rows_N.device)
    places_BR[rows_N, index_N] = columns_N
    return places_BR, index_N


def layer_at(
    layer: nn.Module,
    hidden_BTD: Tensor,
    turns: tuple[Tensor, Tensor],
    places_BR: Tensor,
    seen_B1RT: Tensor | None = None,
) -> Tensor:
    """A Qwen2 decoder layer's output at `places_BR` only, [B, R, D].

    `turns`: cosines and sines of the rotary embedding, [1 or B, T, E]. `seen_B1RT`: what
    each of the places sees, bool; without it, all earlier places and itself.
    """
    attention = layer.self_attn
    rows, _, width = hidden_BTD.shape
    size: int = attention.head_dim
    normed_BTD = layer.input_layernorm(hidden_BTD)
    gather_BRD = places_BR[..., None].expand(-1, -1, width)

    def heads(linear: nn.Module, states: Tensor) -> Tensor:
        return linear(states).unflatten(-1, (-1, size)).transpose(1, 2)

    def at_places(turn: Tensor) -> Tensor:
        return turn.expand(rows, -1, -1).gather(1, places_BR[..., None].expand(-1, -1, size))

    keys, values = heads(attention.k_proj, normed_BTD), heads(attention.v_proj, normed_BTD)
    queries = heads(attention.q_proj, normed_BTD.gather(1, gather_BRD))
    cos, sin = turns
    keys = _rotate(keys, cos[:, None], sin[:, None])
    queries = _rotate(queries, at_places(cos)[:, None], at_places(sin)[:, None])
    if seen_B1RT is None:
        columns_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
        seen_B1RT = columns_T <= places_BR[:, None, :, None]
    mixed = nn.functional.scaled_dot_product_attention(
        queries.to(values.dtype),
        keys.to(values.dtype),
        values,
        attn_mask=seen_B1RT,
        enable_gqa=keys.shape[1] != queries.shape[1],
    )
    residual_BRD = hidden_BTD.gather(1, gather_BRD)
    residual_BRD = residual_BRD + attention.o_proj(mixed.transpose(1, 2).flatten(2))
    return residual_BRD + layer.mlp(layer.post_attention_layernorm(residual_BRD))


def _rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in Qwen2's half-split layout."""
    left, right = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-right, left), dim=-1) * sin


def exact_matches(model: Qwen2ForCausalLM, batch: Batch) -> list[bool]:
    """Whether greedy decoding gives the reply exactly, per row.

    The reply comes out whole exactly when each of its tokens is the most likely one after
    the true ones before it, so one forward pass tells.
    """
    with torch.no_grad():
        right_N = reply_logits(model, batch).argmax(-1) == batch.targets_N
    wrong = set(batch.rows_N[~right_N].tolist())
    return [row not in wrong for row in range(len(batch.ids_BT))]
