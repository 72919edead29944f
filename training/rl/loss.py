"""The loss of Multi-Conv DAPO over all reply tokens of a mini-batch (PROTOCOL 4).

    loss = -1/total * sum over groups, conversations, tokens of
           [min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) - beta k3(pi || pi_ref)]

with r = pi / pi_old per token, and `total` the reply tokens of the whole mini-batch: one mean
over tokens, whatever conversation they stand in. Two bounds that the papers here leave off:
`dual_clip` c, with which a token of negative advantage counts c A at most, however large its ratio
(Ye et al., arXiv:1912.09729, equation 5); and `importance_weights`, pi_old over the engine's own
probability, truncated above, where the engine that drew the replies and the learner that scores
them differ (Espeholt et al., arXiv:1802.01561): they multiply the advantages, and so the surrogate
and not the KL. Each micro-batch gives its share of the sum
over that same total, so the losses (and gradients) of micro-batches add up to the whole.

N: reply tokens of a micro-batch, from any number of groups and conversations; V: vocabulary.
Sources: MemAgent (arXiv:2507.02259), section 3.2; DAPO (arXiv:2503.14476), equation 8; k3:
http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Log ratios are held within this bound, so that one wild token overflows nothing; beyond it
there is no gradient. e^20 is far outside of any clip."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """eps_low, eps_high and beta of the papers; the defaults are the published values. `dual_clip`:
    above 1, or None for no bound."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_beta: float = 1e-3
    dual_clip: float | None = None


@dataclass(frozen=True, slots=True)
class LossStats:
    """Sums over reply tokens, so that micro-batches (and ranks) add up. 0-dim tensors without
    gradient, read only by `means`, so that no device has to wait.

    `clipped`: tokens at which the min takes the clipped branch; `bounded`: those that the dual clip
    bounds. `kl`: k3 to the reference (0
    without one). `ratio`, `log_ratio`, `log_ratio_max`: pi / pi_old, its absolute logarithm,
    and the largest of those. `surrogate`: the min, before the sign and without the KL.
    """

    tokens: Tensor
    clipped: Tensor
    bounded: Tensor
    kl: Tensor
    ratio: Tensor
    log_ratio: Tensor
    log_ratio_max: Tensor
    surrogate: Tensor

    def __add__(self, other: LossStats) -> LossStats:
        return LossStats(
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            bounded=self.bounded + other.bounded,
            kl=self.kl + other.kl,
            ratio=self.ratio + other.ratio,
            log_ratio=self.log_ratio + other.log_ratio,
            log_ratio_max=torch.maximum(self.log_ratio_max, other.log_ratio_max),
            surrogate=self.surrogate + other.surrogate,
        )

    def means(self) -> dict[str, float]:
        """Per token: surrogate, clip_fraction, dual_clip_fraction, kl, ratio, log_ratio; and
        log_ratio_max.

        Raises:
            ValueError: there are no tokens.
        """
        tokens = float(self.tokens)
        if tokens == 0:
            raise ValueError("loss statistics of no tokens: expected at least one reply token")
        return {
            "surrogate": float(self.surrogate) / tokens,
            "clip_fraction": float(self.clipped) / tokens,
            "dual_clip_fraction": float(self.bounded) / tokens,
            "kl": float(self.kl) / tokens,
            "ratio": float(self.ratio) / tokens,
            "log_ratio": float(self.log_ratio) / tokens,
            "log_ratio_max": float(self.log_ratio_max),
        }


def policy_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    *,
    total_tokens: int,
    settings: LossSettings,
    reference_logprobs_N: Tensor | None = None,
    weights_N: Tensor | None = None,
) -> tuple[Tensor, LossStats]:
    """This micro-batch's share of the mini-batch's loss (0-dim), and its statistics.

    Only `logprobs_N` carries gradient. `total_tokens`: reply tokens of the whole mini-batch.
    Without reference logprobs there is no KL term. `weights_N` multiplies each token's term;
    a token of weight 0 is left out of the statistics too, and `total_tokens` should not count it.

    Raises:
        ValueError: tensors of different shapes, no tokens in total, or a `kl_beta` above 0
            without a reference.
    """
    _check(logprobs_N, old_logprobs_N, advantages_N, reference_logprobs_N, weights_N)
    if total_tokens < 1:
        raise ValueError(f"total_tokens: got {total_tokens}, expected at least 1")
    if reference_logprobs_N is None and settings.kl_beta > 0:
        raise ValueError(f"kl_beta is {settings.kl_beta} and there are no reference logprobs")
    log_ratio_N = _bounded(logprobs_N - old_logprobs_N.detach())
    ratio_N = log_ratio_N.exp()
    free_N = ratio_N * advantages_N
    clipped_N = ratio_N.clamp(1 - settings.clip_low, 1 + settings.clip_high) * advantages_N
    plain_N = torch.minimum(free_N, clipped_N)
    surrogate_N = _dual_clipped(plain_N, advantages_N, settings.dual_clip)
    if reference_logprobs_N is None:
        kl_N = torch.zeros_like(surrogate_N)
    else:
        kl_N = k3(logprobs_N, reference_logprobs_N)
    terms_N = surrogate_N - settings.kl_beta * kl_N
    if weights_N is not None:
        terms_N = terms_N * weights_N
    loss = -terms_N.sum() / total_tokens

    with torch.no_grad():
        counted_N = torch.ones_like(ratio_N) if weights_N is None else (weights_N != 0).to(ratio_N)
        drift_N = log_ratio_N.abs() * counted_N
        stats = LossStats(
            tokens=counted_N.sum(),
            clipped=((clipped_N < free_N) * counted_N).sum(),
            bounded=((surrogate_N > plain_N) * counted_N).sum(),
            kl=(kl_N * counted_N).sum(),
            ratio=(ratio_N * counted_N).sum(),
            log_ratio=drift_N.sum(),
            log_ratio_max=drift_N.max() if len(drift_N) else drift_N.sum(),
            surrogate=(surrogate_N * counted_N).sum(),
        )
    return loss, stats


def _dual_clipped(surrogate_N: Tensor, advantages_N: Tensor, bound: float | None) -> Tensor:
    """The surrogate, where the advantage is negative never below `bound` times it."""
    if bound is None:
        return surrogate_N
    held_N = torch.maximum(surrogate_N, bound * advantages_N)
    return torch.where(advantages_N < 0, held_N, surrogate_N)


def importance_weights(own: Tensor, drawn: Tensor, cap: float) -> Tensor:
    """exp(own - drawn), at most `cap`: how much likelier the learner finds each token than the
    engine that drew it, from both's log-probabilities."""
    return _bounded(own - drawn).exp().clamp(max=cap)


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The low-variance estimator of KL(pi || pi_ref), a token each: d = reference - logprob,
    e^d - d - 1, never negative. The reference carries no gradient."""
    difference = _bounded(reference.detach() - logprobs)
    return difference.exp() - difference - 1


def token_logprobs(logits_NV: Tensor, targets_N: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-probability of each target under softmax(logits / temperature): [N], float32 (float64
    for float64 logits)."""
    scaled_NV = _scaled(logits_NV, temperature)
    chosen_N = scaled_NV.gather(-1, targets_N[:, None]).squeeze(-1)
    return chosen_N - scaled_NV.logsumexp(dim=-1)


def entropy_N(logits_NV: Tensor, *, temperature: float = 1.0) -> Tensor:  # noqa: N802
    """Entropy in nats of softmax(logits / temperature): [N], in the precision of
    `token_logprobs`."""
    scaled_NV = _scaled(logits_NV, temperature)
    total_N = scaled_NV.logsumexp(dim=-1)
    probs_NV = (scaled_NV - total_N[:, None]).exp()
    return total_N - (probs_NV * scaled_NV).sum(dim=-1)


def _scaled(logits_NV: Tensor, temperature: float) -> Tensor:
    if temperature <= 0:
        raise ValueError(f"temperature: got {temperature}, expected above 0")
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return logits_NV if temperature == 1.0 else logits_NV / temperature


def _bounded(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def _check(logprobs_N: Tensor, *others: Tensor | None) -> None:
    shapes = [tuple(other.shape) for other in others if other is not None]
    if logprobs_N.dim() != 1 or any(shape != tuple(logprobs_N.shape) for shape in shapes):
        raise ValueError(
            f"loss inputs: got shapes {[tuple(logprobs_N.shape), *shapes]}, expected one [N] of all"
        )
