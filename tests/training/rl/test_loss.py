"""The loss against hand-worked numbers, a plain triple loop, and finite differences."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch
from torch import Tensor

from training.rl.loss import (
    LossSettings,
    LossStats,
    entropy_N,
    importance_weights,
    k3,
    policy_loss,
    token_logprobs,
)

close = torch.testing.assert_close
Token = tuple[float, float, float, float]
"""logprob, old logprob, advantage, reference logprob"""
Groups = list[list[list[Token]]]
"""Token of a conversation of a group (all conversations of all its rollouts)."""

SETTINGS = LossSettings()
ASYMMETRIC = LossSettings(clip_low=0.1, clip_high=0.28, kl_beta=0.05)
DUAL = LossSettings(clip_low=0.2, clip_high=0.28, kl_beta=0.05, dual_clip=1.3)


def ragged(seed: int) -> Groups:
    """Groups of unlike numbers of conversations of unlike lengths; some ratios beyond a clip."""
    rng = random.Random(seed)

    def token() -> Token:
        old = -rng.expovariate(1.0)
        return old + rng.gauss(0, 0.3), old, rng.gauss(0, 1), old + rng.gauss(0, 0.3)

    def conversation() -> list[Token]:
        return [token() for _ in range(rng.randint(1, 9))]

    return [[conversation() for _ in range(rng.randint(1, 5))] for _ in range(rng.randint(1, 4))]


def naive_loss(groups: Groups, settings: LossSettings, reference: bool) -> float:
    """PROTOCOL 4, term by term, in plain floats."""
    total, tokens = 0.0, 0
    for group in groups:
        for conversation in group:
            for logprob, old, advantage, ref in conversation:
                ratio = math.exp(logprob - old)
                held = min(max(ratio, 1 - settings.clip_low), 1 + settings.clip_high)
                term = min(ratio * advantage, held * advantage)
                if settings.dual_clip is not None and advantage < 0:
                    term = max(term, settings.dual_clip * advantage)
                if reference:
                    kl = math.exp(ref - logprob) - (ref - logprob) - 1
                    term -= settings.kl_beta * kl
                total += term
                tokens += 1
    return -total / tokens


def flat(groups: Groups) -> list[Token]:
    return [token for group in groups for conversation in group for token in conversation]


def loss_of(
    tokens: list[Token], total: int, settings: LossSettings, reference: bool
) -> tuple[Tensor, LossStats]:
    columns = torch.tensor(tokens, dtype=torch.float64).T
    return policy_loss(
        columns[0],
        columns[1],
        columns[2],
        total_tokens=total,
        settings=settings,
        reference_logprobs_N=columns[3] if reference else None,
    )


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("settings", [SETTINGS, ASYMMETRIC, DUAL])
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_triple_loop_however_it_is_split(
    seed: int, settings: LossSettings, reference: bool
) -> None:
    if not reference:
        settings = replace(settings, kl_beta=0.0)
    groups = ragged(seed)
    tokens = flat(groups)
    expected = naive_loss(groups, settings, reference)
    for size in (len(tokens), 1, 2, 7):
        parts = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        split = [loss_of(part, len(tokens), settings, reference) for part in parts]
        total = sum(float(loss) for loss, _ in split)
        assert total == pytest.approx(expected, rel=1e-12)
        stats = reduce(add, [one for _, one in split]).means()
        whole = loss_of(tokens, len(tokens), settings, reference)[1].means()
        assert stats == pytest.approx(whole, rel=1e-12)


def test_hand_worked_clips_and_statistics() -> None:
    ratios = [1.5, 1.5, 0.5, 0.5, 1.1]
    advantages = [1.0, -1.0, 1.0, -1.0, 2.0]
    # min(r A, clip(r) A): 1.2 (clipped), -1.5, 0.5, -0.8 (clipped), 2.2
    tokens = [(math.log(r), 0.0, a, 0.0) for r, a in zip(ratios, advantages, strict=True)]
    loss, stats = loss_of(tokens, 10, LossSettings(kl_beta=0.0), reference=False)
    assert float(loss) == pytest.approx(-1.6 / 10)
    means = stats.means()
    assert means["clip_fraction"] == pytest.approx(2 / 5)
    assert means["surrogate"] == pytest.approx(1.6 / 5)
    assert means["ratio"] == pytest.approx(5.1 / 5)
    assert means["log_ratio"] == pytest.approx(
        (2 * math.log(1.5) + 2 * math.log(2) + math.log(1.1)) / 5
    )
    assert means["log_ratio_max"] == pytest.approx(math.log(2))
    assert means["kl"] == 0.0


def test_a_dual_clip_bounds_what_a_bad_token_costs_and_its_gradient() -> None:
    """Ratios e^3 and 2 at advantage -1: at most 3 each; a good token is as ever."""
    logprobs_N = torch.tensor([3.0, math.log(2), 3.0], requires_grad=True)
    advantages_N = torch.tensor([-1.0, -1.0, 1.0])
    loss, stats = policy_loss(
        logprobs_N,
        torch.zeros(3),
        advantages_N,
        total_tokens=1,
        settings=LossSettings(kl_beta=0.0, dual_clip=3.0),
    )
    loss.backward()
    assert float(loss.detach()) == pytest.approx(3.0 + 2.0 - 1.2)
    close(logprobs_N.grad, torch.tensor([0.0, 2.0, 0.0]))
    assert stats.means()["dual_clip_fraction"] == pytest.approx(1 / 3)
    unbounded, _ = policy_loss(
        logprobs_N.detach(),
        torch.zeros(3),
        advantages_N,
        total_tokens=1,
        settings=LossSettings(kl_beta=0.0),
    )
    assert float(unbounded) > 20


def test_importance_weighs_the_surrogate_and_not_the_kl() -> None:
    tokens = [(-0.5, -0.6, 1.0, -0.4), (-1.0, -0.8, -2.0, -1.1)]
    columns = torch.tensor(tokens, dtype=torch.float64).T
    drawn = torch.tensor([-1.6, -0.7], dtype=torch.float64)
    weights = importance_weights(columns[1], drawn, 2.0)
    assert weights.tolist() == pytest.approx([2.0, math.exp(-0.1)])  # e^1 is cut
    loss, _ = policy_loss(
        columns[0],
        columns[1],
        columns[2] * weights,
        total_tokens=2,
        settings=replace(ASYMMETRIC, dual_clip=3.0),
        reference_logprobs_N=columns[3],
    )
    expected = 0.0
    for (logprob, old, advantage, ref), weight in zip(tokens, weights.tolist(), strict=True):
        ratio = math.exp(logprob - old)
        held = min(max(ratio, 0.9), 1.28)
        kl = math.exp(ref - logprob) - (ref - logprob) - 1
        expected -= weight * min(ratio * advantage, held * advantage) - 0.05 * kl
    assert float(loss) == pytest.approx(expected / 2)


def test_hand_worked_kl() -> None:
    got = k3(torch.tensor([0.0, 0.0]), torch.tensor([0.0, math.log(2)]))
    close(got, torch.tensor([0.0, 1 - math.log(2)]))
    loss, stats = loss_of([(0.0, 0.0, 0.0, math.log(2))], 1, LossSettings(kl_beta=0.5), True)
    assert float(loss) == pytest.approx(0.5 * (1 - math.log(2)))
    assert stats.means()["kl"] == pytest.approx(1 - math.log(2))


def test_clipped_tokens_have_no_gradient() -> None:
    logprobs_N = torch.tensor([0.5, -0.5, 0.5, 0.0], requires_grad=True)
    advantages_N = torch.tensor([1.0, -1.0, -1.0, 1.0])
    loss, _ = policy_loss(
        logprobs_N,
        torch.zeros(4),
        advantages_N,
        total_tokens=4,
        settings=LossSettings(kl_beta=0.0),
    )
    loss.backward()
    close(logprobs_N.grad, torch.tensor([0.0, 0.0, math.exp(0.5) / 4, -0.25]))


@pytest.mark.parametrize("seed", range(3))
def test_gradients_equal_finite_differences(seed: int) -> None:
    torch.manual_seed(seed)
    logits_NV = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    targets_N = torch.randint(5, (6,))
    with torch.no_grad():
        start_N = token_logprobs(logits_NV, targets_N, temperature=0.8)
    old_N, reference_N = start_N + 0.3 * torch.randn(2, 6, dtype=torch.float64)
    advantages_N = torch.randn(6, dtype=torch.float64)

    def loss(logits_NV: Tensor) -> Tensor:
        logprobs_N = token_logprobs(logits_NV, targets_N, temperature=0.8)
        return policy_loss(
            logprobs_N,
            old_N,
            advantages_N,
            total_tokens=6,
            settings=ASYMMETRIC,
            reference_logprobs_N=reference_N,
        )[0]

    assert torch.autograd.gradcheck(loss, (logits_NV,))


def test_weights_leave_tokens_out() -> None:
    kept = [(-0.5, -0.6, 1.0, -0.4), (-1.0, -0.8, -2.0, -1.1)]
    columns = torch.tensor([*kept, (-9.0, -1.0, 5.0, -1.0)]).T
    loss, stats = policy_loss(
        columns[0],
        columns[1],
        columns[2],
        total_tokens=2,
        settings=ASYMMETRIC,
        reference_logprobs_N=columns[3],
        weights_N=torch.tensor([1.0, 1.0, 0.0]),
    )
    expected, expected_stats = loss_of(kept, 2, ASYMMETRIC, True)
    close(loss, expected.float())
    assert stats.means() == pytest.approx(expected_stats.means(), rel=1e-5)


def test_a_wild_ratio_stays_finite() -> None:
    loss, stats = loss_of([(0.0, -500.0, -1.0, 0.0)], 1, SETTINGS, True)
    assert math.isfinite(float(loss))
    assert stats.means()["log_ratio_max"] == 20.0


def test_logprobs_and_entropy_are_those_of_the_softmax() -> None:
    logits_NV = torch.tensor([[2.0, 0.0, 0.0], [1000.0, 0.0, -1000.0]], dtype=torch.bfloat16)
    logprobs_N = token_logprobs(logits_NV, torch.tensor([0, 1]), temperature=2.0)
    assert logprobs_N.dtype == torch.float32
    p = math.e / (math.e + 2)
    close(logprobs_N, torch.tensor([math.log(p), -500.0]))
    q = (1 - p) / 2
    expected = -p * math.log(p) - 2 * q * math.log(q)
    close(entropy_N(logits_NV, temperature=2.0), torch.tensor([expected, 0.0]))


def test_wrong_inputs_are_named() -> None:
    two, three = torch.zeros(2), torch.zeros(3)
    with pytest.raises(ValueError, match=r"shapes \[\(2,\), \(3,\), \(2,\)\]"):
        policy_loss(two, three, two, total_tokens=2, settings=SETTINGS)
    with pytest.raises(ValueError, match="total_tokens: got 0"):
        policy_loss(two, two, two, total_tokens=0, settings=SETTINGS)
    with pytest.raises(ValueError, match="no reference logprobs"):
        policy_loss(two, two, two, total_tokens=2, settings=SETTINGS)
    with pytest.raises(ValueError, match="temperature: got 0"):
        token_logprobs(torch.zeros(2, 3), torch.zeros(2).long(), temperature=0)
