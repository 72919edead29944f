"""A rollout engine in plain PyTorch: for small models, for machines without vLLM, and the
oracle that tests measure other engines against.

Requests are packed into batches that fit a preallocated cache: prompts, and the replies to each.
Equal prompts (the rollouts of a group share their first turn, episodes all of it) are read once and
kept once. A prompt whose replies have all ended gives its place to the last one, and a reply that
has ended to its prompt's last one.

A reply is drawn by inverse CDF from uniforms of its own seed: which batch it is in does not
matter. (Float rounding does depend on a batch's shape; it can tip a draw that lies within it.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, repeat
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
from training.rl.engines.qwen2 import Cache, Qwen2

PREFILL_TOKENS = 4096
"""Prompt tokens that are computed together: enough for full matrix speed, and their states
still fit the last-level cache."""

FULL_ENOUGH = 0.75
"""From this share of living replies on, ended ones are computed along with them."""

CANDIDATES = 64
"""Of the most likely tokens, how many are sorted before the whole vocabulary is."""


class TorchEngine:
    """A `training.rl.engines.engine.RolloutEngine`. It copies the model's weights; the model itself
    stays as it is, and later changes reach the engine by `load_weights` alone. A model on the meta
    device lends its sizes, and `load_weights` must give the weights. `device`: where it computes,
    None for where the model is.

    `batch_tokens` bounds the different prompts' and all replies' tokens of a batch (and its cache:
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

    def _run(self, batch: _Batch, sampling: Sampling) -> None:
        """Fills the rows' replies. `batch` is used up."""
        if self.net.device.type == "cpu":
            torch.set_num_threads(1)
        store = self._caches.get()
        try:
            with torch.inference_mode():
                self._fill(batch, self._cache(batch, store), sampling)
        finally:
            self._caches.put(store)

    def _cache(self, batch: _Batch, store: Tensor) -> Cache:
        net, size = self.net, _size(batch)
        prompts = (2, net.layer_count, size.prompts, net.key_heads, size.places, net.head_size)
        replies = (*prompts[:3], size.replies, net.key_heads, size.budget, net.head_size)
        first, second = math.prod(prompts), math.prod(replies)
        return Cache(
            store[:first].view(prompts),
            store[first : first + second].view(replies),
            torch.tensor([len(rows[0].prompt) for rows in batch], device=net.device),
        )

    def _fill(self, batch: _Batch, cache: Cache, sampling: Sampling) -> None:
        logits_PV = self._prefill(batch, cache)
        logits_NV = logits_PV[[place for place, rows in enumerate(batch) for _ in rows]]
        for place in count():
            self._extend([row for rows in batch for row in rows], logits_NV, sampling)
            self._drop_ended(batch, cache, place)
            if not batch:
                return
            replies = cache.replies.shape[3]
            said = [[row.reply[-1] for row in rows] + [0] * (replies - len(rows)) for rows in batch]
            living = [n * replies + m for n, rows in enumerate(batch) for m in range(len(rows))]
            tokens_PR, living_N = (torch.tensor(x, device=self.net.device) for x in (said, living))
            logits_NV = self.net.decode(tokens_PR, place, cache, living_N)

    def _prefill(self, batch: _Batch, cache: Cache) -> Tensor:
        """Reads the prompts, in parts. Returns logits, [P, V]."""
        prompts = [rows[0].prompt for rows in batch]
        return torch.cat(
            [
                self.net.prefill([prompts[place] for place in part], cache, part)
                for part in _parts(prompts)
            ]
        )

    def _extend(self, rows: Sequence[_Row], logits_NV: Tensor, sampling: Sampling) -> None:
        """Draws the rows' next tokens, and notes them."""
        draws = [row.draws[len(row.reply)] for row in rows]
        draws_N = torch.tensor(draws, dtype=torch.float64, device=logits_NV.device)
        tokens_N, logprobs_N = sample(logits_NV, draws_N, sampling)
        for row, token, logprob in zip(rows, tokens_N.tolist(), logprobs_N.tolist(), strict=True):
            row.reply.append(token)
            row.logprobs.append(logprob)
            row.stopped = token in self.end_ids

    @staticmethod
    def _drop_ended(batch: _Batch, cache: Cache, filled: int) -> None:
        """Removes ended rows, and prompts without any, moving the last one into each gap. `filled`:
        tokens of each reply in the cache; its newest is not there yet."""
        for place, rows in enumerate(batch):
            for index in reversed(range(len(rows))):
                if rows[index].ended:
                    moved = rows.pop()
                    if index < len(rows):
                        rows[index] = moved
                        cache.move_reply(place, len(rows), index, filled)
        for place in reversed(range(len(batch))):
            if not batch[place]:
                last = batch.pop()
                if place < len(batch):
                    batch[place] = last
                    cache.move_prompt(len(batch), place)
        if batch:
            replies, most = cache.replies.shape[3], max(map(len, batch))
            cache.narrow(len(batch), most if most <= FULL_ENOUGH * replies else replies)


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


_Batch = list[list[_Row]]
"""For each of its prompts, the rows that reply to it."""


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a batch: its prompts, the most replies to one, the longest prompt, the largest budget."""

    prompts: int
    replies: int
    places: int
    budget: int

    @property
    def tokens(self) -> int:
        """The places of its cache."""
        return self.prompts * (self.places + self.replies * self.budget)


def _size(batch: Sequence[Sequence[_Row]]) -> _Size:
    return _Size(
        prompts=len(batch),
        replies=max(map(len, batch)),
        places=max(len(rows[0].prompt) for rows in batch),
        budget=max(row.request.max_tokens for rows in batch for row in rows),
    )


def _batches(rows: Iterable[_Row], budget: int, workers: int) -> list[_Batch]:
    """Rows by prompt, those with the most replies and the longest first; about equal parts, a
    multiple of `workers`, each of which fits the budget as a padded rectangle."""
    by_prompt: dict[tuple[int, ...], list[_Row]] = {}
    for row in rows:
        by_prompt.setdefault(row.prompt, []).append(row)
    groups = [part for group in by_prompt.values() for part in _fitting(group, budget)]
    sizes = {id(group): _size([group]).tokens for group in groups}
    tokens = sum(sizes.values())
    share = tokens / (workers * math.ceil(tokens / (budget * workers))) if groups else 0
    batches: list[_Batch] = []
    taken = 0
    for group in sorted(groups, key=lambda one: (-len(one), -len(one[0].prompt), one[0].prompt)):
        full = batches and _size([*batches[-1], group]).tokens > budget
        if full or taken >= share * len(batches):
            batches.append([])
        batches[-1].append(group)
        taken += sizes[id(group)]
    return batches


def _fitting(group: list[_Row], budget: int) -> Iterator[list[_Row]]:
    """The rows of a prompt in parts that fit the budget."""
    size = _size([group])
    most = max(1, (budget - size.places) // size.budget)
    for start in range(0, len(group), most):
        yield group[start : start + most]


def _parts(prompts: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """The prompts' numbers in order, in parts of about PREFILL_TOKENS tokens."""
    part: list[int] = []
    tokens = 0
    for number, prompt in enumerate(prompts):
        if part and tokens + len(prompt) > PREFILL_TOKENS:
            yield part
            part, tokens = [], 0
        part.append(number)
        tokens += len(prompt)
    if part:
        yield part


def _end_ids(model: Qwen2ForCausalLM) -> frozenset[int]:
    given = model.generation_config.eos_token_id
    if given is None:
        given = model.config.eos_token_id
    if given is None:
        raise UsageError("the model's config names no eos_token_id: replies would never end")
    return frozenset([given] if isinstance(given, int) else given)
