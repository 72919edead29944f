"""The smallest difference that n samples can show: power 80% at a two-sided alpha of 5%.

Two kinds. *Unpaired*: two shares of n samples each, compared by their means, where they are
hardest to tell apart, on either side of 50%; the normal approximation of the two-proportion test
(Fleiss, Levin and Paik 2003, section 4.2). *Paired*: n questions that both answered, compared by
McNemar's exact test. How much that can show depends on how often the two differ at all, so the
share of pairs that only one of them got right goes in; the power is then exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from core.arithmetic.intervals import Z95

POWER, ALPHA = 0.8, 0.05
Z80 = 0.8416212335729143
"""The 80% quantile of the standard normal distribution."""

STEP = 1e-4
"""Differences are found to a hundredth of a percentage point."""


@lru_cache(maxsize=1024)
def smallest_unpaired(n: int) -> float | None:
    """The smallest difference of two shares of `n` samples each; None where n shows none."""

    def shown(difference: float) -> bool:
        spread = 2 * (0.25 - difference**2 / 4)  # both variances, at 50% less and more a half
        needed = Z95 * math.sqrt(0.5) + Z80 * math.sqrt(spread)
        return difference * math.sqrt(n) >= needed

    return _smallest(shown)


@lru_cache(maxsize=1024)
def smallest_paired(pairs: int, differing: float) -> float | None:
    """The smallest difference of two series on `pairs` questions of which a share `differing` is
    answered right by only one of them (more, where the difference itself needs more). None where
    so few pairs show none: six that all go one way are the least that p < 5% takes."""
    return _smallest(lambda d: paired_power(pairs, max(differing, d), d) >= POWER)


def paired_power(pairs: int, differing: float, difference: float) -> float:
    """The chance that McNemar's exact test finds `difference` at 5%."""
    if differing == 0.0:
        return 0.0
    flips = np.arange(pairs + 1)
    most = _critical(pairs)
    better = min(1.0, (1 + difference / differing) / 2)
    rejected = binom.cdf(most, flips, better) + binom.cdf(most, flips, 1 - better)
    return float(np.sum(binom.pmf(flips, pairs, differing) * rejected))


@lru_cache(maxsize=64)
def _critical(pairs: int) -> np.ndarray:
    """For each number of differing pairs, the most that may go against for p <= alpha; -1: none."""
    flips = np.arange(pairs + 1)
    place = binom.ppf(ALPHA / 2, flips, 0.5)
    tail = binom.cdf(place, flips, 0.5)
    found = np.where(2 * tail <= ALPHA, place, place - 1)
    found[0] = -1
    return found


def _smallest(shown: Callable[[float], bool]) -> float | None:
    """The least difference up to 1 that is shown: more is shown as well."""
    low, high = 0, round(1 / STEP)
    if not shown(1.0):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle * STEP) else (middle, high)
    return high * STEP
