"""Qwen2's forward pass for generation: prompts packed without padding, then token by token.

Same function as transformers' Qwen2ForCausalLM (the tests compare them), with what rollouts
of small models on few cores gain from:

* q, k, v are one matrix, and so are gate and up. The rotary halves are stored as pairs, so
  that a rotation is one complex product; scores don't change, for q and k are both reordered.
* Prompts stand end to end, so nothing is computed for padding; each attends to itself only.
* The last layer's queries and MLP are computed at each prompt's last token alone.
* All replies to a prompt attend to one copy of its keys and values, in one product.
* The residual stream, norms and rotations are float32, as in training under autocast; only
  matrix products are in `dtype`.

Axes: N tokens of all prompts, P prompts, R replies to each, B of both (P * R), T tokens of a prompt
or reply, S places of a prompt, W of the window, D width, Q query heads, K key heads, G queries a
key head, E head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from core.errors import UsageError

QUERY_BLOCK = 128
"""Queries of a prompt that attend at a time. Their scores fit the core's own cache."""


@dataclass(frozen=True, slots=True)
class _Layer:
    norm_D: Tensor  # noqa: N815
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm_D: Tensor  # noqa: N815
    gate_up: Tensor
    down: Tensor


@dataclass(slots=True)
class Cache:
    """Keys and values of a batch, index 0 and 1 of the first axis. Places of a prompt that is
    shorter than S may hold any finite numbers.

    prompts: [2, layers, P, K, S, E]; replies: [2, layers, P, R, K, T, E]; lengths_P: of the
    prompts, in tokens.
    """

    prompts: Tensor
    replies: Tensor
    lengths_P: Tensor  # noqa: N815

    def move_prompt(self, source: int, target: int) -> None:
        """A prompt and its replies into the place of another."""
        for states in (self.prompts, self.replies):
            states[:, :, target] = states[:, :, source]
        self.lengths_P[target] = self.lengths_P[source]

    def move_reply(self, prompt: int, source: int, target: int, filled: int) -> None:
        """A prompt's reply of so many tokens into the place of another."""
        states = self.replies[:, :, prompt, :, :, :filled]
        states[:, :, target] = states[:, :, source]

    def narrow(self, prompts: int, replies: int) -> None:
        """Keeps the first so many prompts, and replies to each."""
        self.prompts, self.lengths_P = self.prompts[:, :, :prompts], self.lengths_P[:prompts]
        self.replies = self.replies[:, :, :prompts]
        if replies < self.replies.shape[3]:
            # A copy: the products need a prompt's replies side by side. They are short.
            self.replies = self.replies[:, :, :, :replies].contiguous()


class Qwen2:
    """Weights and both passes. It starts with zeros: call `load_weights`.

    Raises:
        UsageError: the config asks for something this does not compute.
    """

    def __init__(self, config: Qwen2Config, dtype: torch.dtype, device: torch.device) -> None:
        _check(config)
        self.dtype, self.device = dtype, device
        self.width, self.eps = config.hidden_size, config.rms_norm_eps
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or self.width // self.heads
        self.layer_count = config.num_hidden_layers
        self.tied = bool(config.tie_word_embeddings)
        self._places: dict[str, tuple[tuple[int, ...], Tensor]] = {}  # name: shape, where to
        self.embed_VD = self._place("model.embed_tokens.weight", config.vocab_size, self.width)
        self.layers = [
            self._layer(f"model.layers.{i}.", config.intermediate_size)
            for i in range(self.layer_count)
        ]
        self.norm_D = self._norm("model.norm.weight")
        self.head_VD = (
            self.embed_VD
            if self.tied
            else self._place("lm_head.weight", config.vocab_size, self.width)
        )
        self.turns_WE = _rotations(config).to(device)
        self.future = torch.full((QUERY_BLOCK, QUERY_BLOCK), -torch.inf, device=device).triu_(1)

    # -- weights ---------------------------------------------------------------------------

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copies tensors, by checkpoint name, into place. Raises ValueError for a name or a
        shape that the model does not have."""
        for name, tensor in weights:
            if name == "lm_head.weight" and self.tied:
                continue
            if name not in self._places:
                raise ValueError(f"no weight {name!r} in this model")
            shape, place = self._places[name]
            if tuple(tensor.shape) != shape:
                raise ValueError(f"weight {name!r}: {tuple(tensor.shape)} given, {shape} expected")
            place.copy_(tensor.detach().reshape(place.shape))

    def _layer(self, prefix: str, inner: int) -> _Layer:
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        sizes = {"q": self.heads, "k": self.key_heads, "v": self.key_heads}
        rows = sum(sizes.values()) * self.head_size
        qkv, bias = self._zeros(rows, self.width), self._zeros(rows)
        start = 0
        for letter, heads in sizes.items():
            stop = start + heads * self.head_size
            for suffix, whole in (("weight", qkv), ("bias", bias)):
                part = whole[start:stop]
                shape = tuple(part.shape)
                if letter != "v":  # stored as pairs, named as halves
                    part = part.unflatten(0, (heads, -1, 2)).transpose(1, 2)
                self._places[f"{attention}{letter}_proj.{suffix}"] = (shape, part)
            start = stop
        gate_up = self._zeros(2 * inner, self.width)
        for name, part in zip(("gate", "up"), gate_up.chunk(2), strict=True):
            self._places[f"{mlp}{name}_proj.weight"] = (tuple(part.shape), part)
        return _Layer(
            norm_D=self._norm(prefix + "input_layernorm.weight"),
            qkv=qkv,
            qkv_bias=bias,
            out=self._place(f"{attention}o_proj.weight", self.width, self.heads * self.head_size),
            mlp_norm_D=self._norm(prefix + "post_attention_layernorm.weight"),
            gate_up=gate_up,
            down=self._place(f"{mlp}down_proj.weight", self.width, inner),
        )

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _place(self, name: str, *shape: int) -> Tensor:
        place = self._zeros(*shape)
        self._places[name] = (shape, place)
        return place

    def _norm(self, name: str) -> Tensor:
        place = torch.zeros(self.width, device=self.device)
        self._places[name] = ((self.width,), place)
        return place

    # -- passes ----------------------------------------------------------------------------

    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: Cache, places: Sequence[int]
    ) -> Tensor:
        """Reads each prompt into its place in the cache. Returns the logits after each prompt,
        float32 [P, V]."""
        lengths = [len(prompt) for prompt in prompts]
        ids_N = torch.tensor([token for prompt in prompts for token in prompt])
        turns_NE = self.turns_WE[torch.cat([torch.arange(n) for n in lengths])]
        ends_P = torch.tensor(lengths).cumsum(0)
        starts = [0, *ends_P.tolist()]
        last_P = (ends_P - 1).to(self.device)
        hidden_ND = F.embedding(ids_N.to(self.device), self.embed_VD).float()
        for index, layer in enumerate(self.layers):
            queries_QNE, keys_KNE, values_KNE = self._project(layer, hidden_ND, turns_NE)
            mixed_ND = hidden_ND.new_empty(len(ids_N), self.heads * self.head_size).to(self.dtype)
            last = index == self.layer_count - 1
            for place, start, stop in zip(places, starts, starts[1:], strict=False):
                keys = keys_KNE[:, start:stop]
                values = cache.prompts[1, index, place, :, : stop - start]
                values.copy_(values_KNE[:, start:stop])
                cache.prompts[0, index, place, :, : stop - start] = keys
                first = stop - 1 if last else start
                self._attend(queries_QNE[:, first:stop], keys, values, mixed_ND[first:stop])
            if last:
                hidden_ND, mixed_ND = hidden_ND[last_P], mixed_ND[last_P]
            hidden_ND = self._finish(layer, hidden_ND, mixed_ND)
        return self._logits(hidden_ND)

    def decode(self, tokens_PR: Tensor, place: int, cache: Cache, rows_N: Tensor) -> Tensor:
        """One token of each reply, at this place of it. Returns the logits after those of `rows_N`
        (reply r to prompt p is row p * R + r), float32 [N, V]."""
        prompts, replies = tokens_PR.shape
        turns_BE = self.turns_WE[(cache.lengths_P + place).repeat_interleave(replies)]
        # Attends to all S places, masked: of a cut cache, matrix products would make a copy.
        places_S = torch.arange(cache.prompts.shape[4], device=self.device)
        bias_PS = torch.zeros(prompts, len(places_S), dtype=self.dtype, device=self.device)
        bias_PS.masked_fill_(places_S >= cache.lengths_P[:, None], -torch.inf)
        hidden_BD = F.embedding(tokens_PR.flatten(), self.embed_VD).float()
        for index, layer in enumerate(self.layers):
            queries_QBE, keys_KBE, values_KBE = self._project(layer, hidden_BD, turns_BE)
            own_PRKTE = cache.replies[:, index]
            for states_PRKTE, new_KBE in zip(own_PRKTE, (keys_KBE, values_KBE), strict=True):
                new_BKE = new_KBE.transpose(0, 1).to(self.dtype)
                states_PRKTE[:, :, :, place] = new_BKE.unflatten(0, (prompts, replies))
            queries_BKGE = queries_QBE.unflatten(0, (self.key_heads, -1)).permute(2, 0, 1, 3)
            mixed_BD = self._attend_both(
                queries_BKGE.to(self.dtype).unflatten(0, (prompts, replies)),
                cache.prompts[:, index],
                own_PRKTE[..., : place + 1, :],
                bias_PS,
            )
            hidden_BD = self._finish(layer, hidden_BD, mixed_BD)
        return self._logits(hidden_BD[rows_N])

    @staticmethod
    def _attend_both(queries_PRKGE: Tensor, shared: Tensor, own: Tensor, bias_PS: Tensor) -> Tensor:
        """Attention of each reply's last token to its prompt and to the reply, [B, D]. `shared`,
        `own`: keys and values, [2, P, K, S, E] and [2, P, R, K, T, E]."""
        prompts, replies, heads, group, _ = queries_PRKGE.shape
        keys_PKSE, values_PKSE = shared
        # For each prompt, the queries of all its replies; for each reply, its own.
        queries_PKNE = queries_PRKGE.transpose(1, 2).flatten(2, 3)
        queries_BGE = queries_PRKGE.flatten(0, 2)
        own_keys_BTE, own_values_BTE = (states.flatten(0, 2) for states in own)
        # Keys on the left: with one query these products are several times faster.
        scores_PKSN = (keys_PKSE @ queries_PKNE.transpose(2, 3)).add_(bias_PS[:, None, :, None])
        own_scores_BTG = own_keys_BTE @ queries_BGE.transpose(1, 2)
        own_scores = own_scores_BTG.unflatten(0, (prompts, replies, heads)).permute(0, 2, 1, 4, 3)
        both = torch.cat([scores_PKSN.transpose(2, 3), own_scores.flatten(2, 3)], -1)
        shares, own_shares = torch.softmax(both, -1).split(
            (keys_PKSE.shape[2], own_keys_BTE.shape[1]), -1
        )
        mixed_PKNE = shares @ values_PKSE
        own_BGT = own_shares.unflatten(2, (replies, group)).transpose(1, 2).flatten(0, 2)
        mixed_PRKGE = mixed_PKNE.unflatten(2, (replies, group)).transpose(1, 2)
        own_PRKGE = (own_BGT @ own_values_BTE).unflatten(0, (prompts, replies, heads))
        return (mixed_PRKGE + own_PRKGE).flatten(0, 1).flatten(1)

    def _project(
        self, layer: _Layer, hidden_ND: Tensor, turns_NE: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [Q, N, E] (rotated and scaled) and keys [K, N, E] (rotated), both float32,
        and values [K, N, E] of one layer."""
        normed_ND = self._normed(hidden_ND, layer.norm_D)
        heads_NHE = F.linear(normed_ND, layer.qkv, layer.qkv_bias).unflatten(
            1, (-1, self.head_size)
        )
        turning, values_NKE = heads_NHE.split((self.heads + self.key_heads, self.key_heads), 1)
        pairs_HNE = torch.view_as_complex(turning.float().unflatten(2, (-1, 2))).transpose(0, 1)
        turned_HNE = pairs_HNE.new_empty(pairs_HNE.shape)
        scaled_NE = turns_NE * self.head_size**-0.5
        torch.mul(pairs_HNE[: self.heads], scaled_NE, out=turned_HNE[: self.heads])
        torch.mul(pairs_HNE[self.heads :], turns_NE, out=turned_HNE[self.heads :])
        real_HNE = torch.view_as_real(turned_HNE).flatten(2)
        return real_HNE[: self.heads], real_HNE[self.heads :], values_NKE.transpose(0, 1)

    def _attend(
        self, queries_QRE: Tensor, keys_KTE: Tensor, values_KTE: Tensor, mixed_RD: Tensor
    ) -> None:
        """Causal attention of a prompt's last R queries to its keys, into `mixed_RD`."""
        count, length = queries_QRE.shape[1], keys_KTE.shape[1]
        queries_KGRE = queries_QRE.unflatten(0, (self.key_heads, -1))
        mixed_KGRE = mixed_RD.unflatten(1, (*queries_KGRE.shape[:2], -1)).permute(1, 2, 0, 3)
        for start in range(0, count, QUERY_BLOCK):
            stop = min(start + QUERY_BLOCK, count)
            size, seen = stop - start, length - count + stop
            block = queries_KGRE[:, :, start:stop].flatten(1, 2)
            scores = (block @ keys_KTE[:, :seen].transpose(1, 2)).unflatten(1, (-1, size))
            scores[..., seen - size :] += self.future[:size, :size]
            shares = torch.softmax(scores, -1).to(self.dtype).flatten(1, 2)
            mixed_KGRE[:, :, start:stop] = (shares @ values_KTE[:, :seen]).unflatten(1, (-1, size))

    def _finish(self, layer: _Layer, hidden_ND: Tensor, mixed_ND: Tensor) -> Tensor:
        """The rest of a layer after attention."""
        hidden_ND = hidden_ND + F.linear(mixed_ND, layer.out)
        both = F.linear(self._normed(hidden_ND, layer.mlp_norm_D), layer.gate_up)
        gate, up = both.chunk(2, -1)
        return hidden_ND.add_(F.linear(F.silu(gate).mul_(up), layer.down))

    def _normed(self, hidden_ND: Tensor, weight_D: Tensor) -> Tensor:
        return F.rms_norm(hidden_ND, (self.width,), weight_D, self.eps).to(self.dtype)

    def _logits(self, hidden_BD: Tensor) -> Tensor:
        return F.linear(self._normed(hidden_BD, self.norm_D), self.head_VD).float()


def _rotations(config: Qwen2Config) -> Tensor:
    """cos + i sin for each position of the window and each pair, complex64 [W, E / 2]."""
    positions_1W = torch.arange(config.max_position_embeddings)[None]
    cos, sin = Qwen2RotaryEmbedding(config)(torch.zeros(1), positions_1W)
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, :half], sin[0, :, :half])


def _check(config: Qwen2Config) -> None:
    rope = config.rope_parameters["rope_type"]
    if config.hidden_act != "silu" or rope in ("dynamic", "longrope"):
        raise UsageError(f"the torch engine has no {config.hidden_act} with {rope} rotations")
    if any(kind != "full_attention" for kind in config.layer_types):
        raise UsageError("the torch engine has no sliding-window attention")
