"""95% intervals for mean scores in [0, 1].

One formula serves both kinds of score. For 0/1 scores it is Wilson's score interval (Wilson
1927), which keeps its coverage at small n and near 0 and 1, where the normal one collapses
(Brown, Cai and DasGupta, Statistical Science 16(2), 2001). For shares (a multi-value needle
scored 0.75) the mean takes the place of the proportion: a variable in [0, 1] with mean p has
variance at most p(1 - p) (Bhatia and Davis, 2000), so the interval is at least as wide as it
must be. A bootstrap would have width zero when all of 8 samples score 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean score in [0, 1] over `n` samples, with its 95% interval [low, high]."""

    mean: float
    low: float
    high: float
    n: int


def wilson(mean: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, or of the mean of scores in [0, 1].

    Raises:
        ValueError: `n` is not positive, or `mean` is outside [0, 1].
    """
    if n < 1 or not 0.0 <= mean <= 1.0:
        raise ValueError(f"wilson: got mean {mean} of {n} samples, expected a share of n >= 1")
    shrink = 1.0 + z * z / n
    centre = (mean + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(mean * (1.0 - mean) / n + z * z / (4.0 * n * n))
    # At 0 and 1 the end is exact in theory and off by a rounding error in floats.
    low = 0.0 if mean == 0.0 else max(0.0, centre - half)
    high = 1.0 if mean == 1.0 else min(1.0, centre + half)
    return low, high


def estimate(scores: Sequence[float]) -> Estimate:
    """The mean of scores in [0, 1] and its interval.

    Raises:
        ValueError: there are no scores, or one is outside [0, 1].
    """
    if not scores:
        raise ValueError("estimate: no scores")
    # Summed exactly, then clipped: a mean of ones must be one.
    mean = math.fsum(scores) / len(scores)
    low, high = wilson(mean, len(scores))
    return Estimate(mean, low, high, len(scores))


def average(estimates: Sequence[Estimate]) -> Estimate:
    """The unweighted mean of independent estimates: every task counts the same.

    The interval comes from the parts' own limits (MOVER: Zou and Donner, Statistics in
    Medicine 27, 2008), so it stays inside [0, 1] and is not symmetric near the ends. `n` is
    the number of samples in all.

    Raises:
        ValueError: there are no estimates.
    """
    if not estimates:
        raise ValueError("average: no estimates")
    k = len(estimates)
    mean = math.fsum(e.mean for e in estimates) / k
    below = math.sqrt(math.fsum((e.mean - e.low) ** 2 for e in estimates)) / k
    above = math.sqrt(math.fsum((e.high - e.mean) ** 2 for e in estimates)) / k
    return Estimate(
        mean, max(0.0, mean - below), min(1.0, mean + above), sum(e.n for e in estimates)
    )
