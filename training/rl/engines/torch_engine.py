"""A rollout engine in plain PyTorch: for small models, for machines without vLLM, and the
oracle that tests measure other engines against.

Requests are sorted by length and packed into batches that fit a preallocated cache. Equal
prompts (the rollouts of a group share their first turn) are read once. A row that has ended
gives its place to the last one, so every step computes living rows only.

A reply is drawn by inverse CDF from uniforms of its own seed: which batch it is in does not
matter. (Float rounding does depend on a batch's shape; it can tip a draw that lies within it.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from queue import SimpleQueue
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sampling
from training.rl.engines.engine import Generated, Request
from training.rl.engines.qwen2 import KeysValues, Qwen2

PREFILL_TOKENS = 4096
"""Prompt tokens that are computed together: enough for full matrix speed, and their states
still fit the last-level cache."""

CANDIDATES = 64
"""Of the most likely tokens, how many are sorted before the whole vocabulary is."""


class TorchEngine:
    """A `training.rl.engines.engine.RolloutEngine`. It copies the model's weights; the model itself
    stays as it is, and later changes reach the engine by `load_weights` alone. A model on the meta
    device lends its sizes, and `load_weights` must give the weights. `device`: where it computes,
    None for where the model is.

    `batch_tokens` bounds the prompt and reply tokens of a batch (and its cache:
    2 * layers * key heads * head size numbers a token). `precision` is that of the matrix
    products; sums, norms and probabilities are float32. `workers` batches run at a time, each
    on one core: small matrices gain nothing from more. It is part of what decides the batches,
    so it does not follow the machine's cores. On a GPU it is 1.

    Raises:
        UsageError: the model names no closing token, or asks for what qwen2.py does not compute.
    """

    def __init__(
        self,
        model: Qwen2ForCausalLM,
        tokenizer: Tokenizer,
        *,
        batch_tokens: int,
        precision: Literal["bfloat16", "float32"],
        workers: int = 2,
        device: torch.device | None = None,
    ) -> None:
        config, device = model.config, device or model.device
        self.tokenizer = tokenizer
        self.window_tokens = int(config.max_position_embeddings)
        self.batch_tokens = batch_tokens
        self.end_ids = _end_ids(model)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.net = Qwen2(config, dtype, device)
        self.workers = workers if device.type == "cpu" else 1
        place = 2 * self.net.layer_count * self.net.key_heads * self.net.head_size
        self._caches: SimpleQueue[Tensor] = SimpleQueue()
        for _ in range(self.workers):  # zeros: what is masked must be finite
            self._caches.put(torch.zeros(place * batch_tokens, dtype=dtype, device=device))
        if model.device.type != "meta":
            self.load_weights(model.state_dict().items())

    def sleep(self) -> None:
        """See RolloutEngine. It holds little, and keeps it."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. Raises ValueError for an unknown name or a wrong shape."""
        with torch.inference_mode():
            self.net.load_weights(weights)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        """See RolloutEngine.

        Raises:
            UsageError: `sampling` asks for a repetition penalty, which this has not.
            ValueError: a request is empty or larger than the window or a batch.
        """
        if sampling.repetition_penalty != 1.0:
            raise UsageError("the torch engine has no repetition penalty")
        rows = [_Row(index, request) for index, request in enumerate(requests)]
        for row in rows:
            if not (row.prompt and row.request.max_tokens > 0):
                raise ValueError("a request needs a prompt and room for a reply")
            if row.tokens > min(self.window_tokens, self.batch_tokens):
                raise ValueError(
                    f"a request of {row.tokens} tokens: the window has {self.window_tokens}, "
                    f"a batch {self.batch_tokens}"
                )
        batches = list(_batches(rows, self.batch_tokens, self.workers))
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                list(pool.map(self._run, batches, repeat(sampling)))
            finally:
                torch.set_num_threads(threads)  # the workers' setting reaches beyond them
        return [row.generated() for row in rows]

    # -- one batch -------------------------------------------------------------------------

    def _run(self, rows: list[_Row], sampling: Sampling) -> None:
        """Fills the rows' replies. `rows` is used up."""
        if self.net.device.type == "cpu":
            torch.set_num_threads(1)
        store = self._caches.get()
        try:
            with torch.inference_mode():
                self._fill(rows, self._cache(rows, store), sampling)
        finally:
            self._caches.put(store)

    def _cache(self, rows: Sequence[_Row], store: Tensor) -> KeysValues:
        net = self.net
        places = max(row.tokens for row in rows)
        shape = (2, net.layer_count, len(rows), net.key_heads, places, net.head_size)
        keys, values = store[: math.prod(shape)].view(shape)
        return KeysValues(keys, values)

    def _fill(self, rows: list[_Row], cache: KeysValues, sampling: Sampling) -> None:
        logits_BV = self._prefill(rows, cache)
        while True:
            tokens_B = self._extend(rows, logits_BV, sampling)
            keep = self._drop_ended(rows, cache)
            if not rows:
                return
            logits_BV = self.net.decode(
                tokens_B[torch.tensor(keep, device=tokens_B.device)],
                torch.tensor([row.filled - 1 for row in rows], device=tokens_B.device),
                cache,
            )

    def _prefill(self, rows: Sequence[_Row], cache: KeysValues) -> Tensor:
        """Reads each different prompt once, in parts. Returns logits, [B, V]."""
        first_of: dict[tuple[int, ...], int] = {}
        for index, row in enumerate(rows):
            first_of.setdefault(row.prompt, index)
        logits: dict[int, Tensor] = {}
        for part in _parts(sorted(first_of.values()), rows):
            part_BV = self.net.prefill([rows[i].prompt for i in part], cache, part)
            logits.update(zip(part, part_BV, strict=True))
        for index, row in enumerate(rows):
            first = first_of[row.prompt]
            if first != index:
                length = len(row.prompt)
                for states in (cache.keys, cache.values):
                    states[:, index, :, :length] = states[:, first, :, :length]
        return torch.stack([logits[first_of[row.prompt]] for row in rows])

    def _extend(self, rows: Sequence[_Row], logits_BV: Tensor, sampling: Sampling) -> Tensor:
        """Draws the rows' next tokens, [B], and notes them."""
        draws = [row.draws[len(row.reply)] for row in rows]
        draws_B = torch.tensor(draws, dtype=torch.float64, device=logits_BV.device)
        tokens_B, logprobs_B = sample(logits_BV, draws_B, sampling)
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            row.reply.append(token)
            row.logprobs.append(logprob)
            row.stopped = token in self.end_ids
        return tokens_B

    @staticmethod
    def _drop_ended(rows: list[_Row], cache: KeysValues) -> list[int]:
        """Removes ended rows, moving the last one into each gap. Returns where each of the
        rows that are left was before."""
        keep = list(range(len(rows)))
        for index in reversed(range(len(rows))):
            if not rows[index].ended:
                continue
            moved, came_from = rows.pop(), keep.pop()
            if index < len(rows):
                rows[index], keep[index] = moved, came_from
                # Its newest token is not in the cache yet.
                length = moved.filled - 1
                for states in (cache.keys, cache.values):
                    states[:, index, :, :length] = states[:, len(rows), :, :length]
        return keep


@dataclass(slots=True)
class _Row:
    """A request and its reply as it grows."""

    index: int
    request: Request
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    draws: list[float] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(list(self.request.seed))
        self.draws = rng.random(self.request.max_tokens).tolist()

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.request.prompt_ids

    @property
    def tokens(self) -> int:
        """The most it can come to."""
        return len(self.prompt) + self.request.max_tokens

    @property
    def filled(self) -> int:
        return len(self.prompt) + len(self.reply)

    @property
    def ended(self) -> bool:
        return self.stopped or len(self.reply) == self.request.max_tokens

    def generated(self) -> Generated:
        reason = "stop" if self.stopped else "length"
        return Generated(tuple(self.reply), tuple(self.logprobs), reason)


def sample(logits_BV: Tensor, draws_B: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """A token a row by inverse CDF, and its logprob before top_p and top_k cut, both [B].

    draws_B: uniform in [0, 1), float64. Temperature 0 takes the most likely token.
    """
    if sampling.temperature > 0:
        logits_BV = logits_BV / sampling.temperature
    logprobs_BV = torch.log_softmax(logits_BV, -1)
    if sampling.temperature <= 0:
        tokens_B = logits_BV.argmax(-1)
    elif sampling.top_p >= 1 and sampling.top_k <= 0:
        tokens_B = _inverse_cdf(logprobs_BV.exp(), draws_B)
    else:
        tokens_B = _draw_cut(logprobs_BV.exp(), draws_B, sampling, CANDIDATES)
    return tokens_B, logprobs_BV.gather(1, tokens_B[:, None])[:, 0]


def _inverse_cdf(shares_BV: Tensor, draws_B: Tensor) -> Tensor:
    sums_BV = shares_BV.cumsum(-1, dtype=torch.float64)
    targets_B1 = (draws_B * sums_BV[:, -1])[:, None]
    # Right: the first sum above the target, so a token of probability 0 is never drawn.
    return torch.searchsorted(sums_BV, targets_B1, right=True)[:, 0].clamp_max(
        shares_BV.shape[1] - 1
    )


def _draw_cut(probs_BV: Tensor, draws_B: Tensor, sampling: Sampling, size: int) -> Tensor:
    """Draws among what top_k and top_p leave: the fewest most likely tokens whose sum reaches
    top_p (Holtzman et al., arXiv:1904.09751).

    To sort a vocabulary takes longer than all else in a step of a small model, so the `size`
    most likely tokens are tried first, and the whole for the rows where these are too few: flat
    distributions pay for both. The draw is the same either way, except that which of several
    equally likely tokens stand at the cut is not fixed.
    """
    whole = size >= probs_BV.shape[1]
    if whole:
        top_BK, tokens_BK = probs_BV.sort(dim=-1, descending=True, stable=True)
    else:
        top_BK, tokens_BK = probs_BV.topk(size)
    out_BK = top_BK.cumsum(-1) - top_BK >= sampling.top_p
    if sampling.top_k > 0:
        out_BK[:, sampling.top_k :] = True
    # The inverse CDF goes through the tokens by their number, as through the whole vocabulary.
    tokens_BK, order_BK = tokens_BK.sort(dim=-1)
    shares_BK = top_BK.masked_fill(out_BK, 0).gather(1, order_BK)
    drawn_B = tokens_BK.gather(1, _inverse_cdf(shares_BK, draws_B)[:, None])[:, 0]
    open_B = ~out_BK[:, -1]
    if not whole and bool(open_B.any()):
        rest = (probs_BV[open_B], draws_B[open_B])
        drawn_B[open_B] = _draw_cut(*rest, sampling, probs_BV.shape[1])
    return drawn_B


def _batches(rows: Sequence[_Row], budget: int, workers: int) -> list[list[_Row]]:
    """Rows by length, longest first; about equal parts, a multiple of `workers`, each of which
    fits the budget as a padded rectangle. Equal prompts end up side by side."""
    tokens = sum(row.tokens for row in rows)
    share = tokens / (workers * math.ceil(tokens / (budget * workers))) if rows else 0
    batches: list[list[_Row]] = []
    taken = 0
    for row in sorted(rows, key=lambda row: (-row.tokens, row.prompt, row.index)):
        full = batches and batches[-1][0].tokens * (len(batches[-1]) + 1) > budget
        if full or taken >= share * len(batches):
            batches.append([])
        batches[-1].append(row)
        taken += row.tokens
    return batches


def _parts(indices: Sequence[int], rows: Sequence[_Row]) -> Iterator[list[int]]:
    """Indices in order, in parts of about PREFILL_TOKENS prompt tokens."""
    part: list[int] = []
    tokens = 0
    for index in indices:
        if part and tokens + len(rows[index].prompt) > PREFILL_TOKENS:
            yield part
            part, tokens = [], 0
        part.append(index)
        tokens += len(rows[index].prompt)
    if part:
        yield part


def _end_ids(model: Qwen2ForCausalLM) -> frozenset[int]:
    given = model.generation_config.eos_token_id
    if given is None:
        given = model.config.eos_token_id
    if given is None:
        raise UsageError("the model's config names no eos_token_id: replies would never end")
    return frozenset([given] if isinstance(given, int) else given)
