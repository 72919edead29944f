"""Qwen2's forward pass for generation: prompts packed without padding, then token by token.

Same function as transformers' Qwen2ForCausalLM (the tests compare them), with what rollouts
of small models on few cores gain from:

* q, k, v are one matrix, and so are gate and up. The rotary halves are stored as pairs, so
  that a rotation is one complex product; scores don't change, for q and k are both reordered.
* Prompts stand end to end, so nothing is computed for padding; each attends to itself only.
* The last layer's queries and MLP are computed at each prompt's last token alone.
* The residual stream, norms and rotations are float32, as in training under autocast; only
  matrix products are in `dtype`.

Axes: N tokens of all prompts, B rows, T tokens of a prompt, S places of the cache, W of the
window, D width, Q query heads, K key heads, G queries a key head, E head size, V vocabulary.
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


@dataclass(frozen=True, slots=True)
class KeysValues:
    """The cache of a batch: each [layers, B, K, S, E]."""

    keys: Tensor
    values: Tensor


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
        self, prompts: Sequence[Sequence[int]], cache: KeysValues, rows: Sequence[int]
    ) -> Tensor:
        """Reads each prompt into its row of the cache. Returns the logits after each prompt,
        float32 [B, V]."""
        lengths = [len(prompt) for prompt in prompts]
        ids_N = torch.tensor([token for prompt in prompts for token in prompt])
        turns_NE = self.turns_WE[torch.cat([torch.arange(n) for n in lengths])]
        ends_B = torch.tensor(lengths).cumsum(0)
        starts = [0, *ends_B.tolist()]
        last_B = (ends_B - 1).to(self.device)
        hidden_ND = F.embedding(ids_N.to(self.device), self.embed_VD).float()
        for index, layer in enumerate(self.layers):
            queries_QNE, keys_KNE, values_KNE = self._project(layer, hidden_ND, turns_NE)
            mixed_ND = hidden_ND.new_empty(len(ids_N), self.heads * self.head_size).to(self.dtype)
            last = index == self.layer_count - 1
            for row, start, stop in zip(rows, starts, starts[1:], strict=False):
                keys = keys_KNE[:, start:stop]
                values = cache.values[index, row, :, : stop - start]
                values.copy_(values_KNE[:, start:stop])
                cache.keys[index, row, :, : stop - start] = keys
                first = stop - 1 if last else start
                self._attend(queries_QNE[:, first:stop], keys, values, mixed_ND[first:stop])
            if last:
                hidden_ND, mixed_ND = hidden_ND[last_B], mixed_ND[last_B]
            hidden_ND = self._finish(layer, hidden_ND, mixed_ND)
        return self._logits(hidden_ND)

    def decode(self, tokens_B: Tensor, places_B: Tensor, cache: KeysValues) -> Tensor:
        """One token a row: token b stands at place places_B[b] of row b. Returns the logits
        after it, float32 [B, V].

        Attends to all S places, masked: of a cut cache, matrix products would make a copy.
        """
        count = len(tokens_B)
        rows_B = torch.arange(count, device=self.device)
        turns_BE = self.turns_WE[places_B]
        # A row's later places hold what an earlier batch left there.
        columns_S = torch.arange(cache.keys.shape[3], device=self.device)
        bias_BS = torch.zeros(count, len(columns_S), dtype=self.dtype, device=self.device)
        bias_BS.masked_fill_(columns_S > places_B[:, None], -torch.inf)
        bias_B1S1 = bias_BS[:, None, :, None]
        hidden_BD = F.embedding(tokens_B, self.embed_VD).float()
        for index, layer in enumerate(self.layers):
            queries_QBE, keys_KBE, values_KBE = self._project(layer, hidden_BD, turns_BE)
            cache.keys[index, rows_B, :, places_B] = keys_KBE.transpose(0, 1).to(self.dtype)
            cache.values[index, rows_B, :, places_B] = values_KBE.transpose(0, 1)
            keys_BKSE, values_BKSE = cache.keys[index, :count], cache.values[index, :count]
            queries_BKGE = queries_QBE.unflatten(0, (self.key_heads, -1)).permute(2, 0, 1, 3)
            # Keys on the left: with one query this product is several times faster.
            scores_BKSG = keys_BKSE @ queries_BKGE.to(self.dtype).transpose(2, 3)
            shares_BKGS = torch.softmax(scores_BKSG.add_(bias_B1S1).transpose(2, 3), -1)
            hidden_BD = self._finish(layer, hidden_BD, (shares_BKGS @ values_BKSE).flatten(1))
        return self._logits(hidden_BD)

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
