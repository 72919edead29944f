"""Mean scores in [0, 1] with their 95% intervals (core/arithmetic/intervals.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from core.arithmetic.intervals import wilson
from reports.statistics.clusters import effective_samples


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean score in [0, 1] over `n` draws of samples, with its 95% interval [low, high].
    `clusters`: how many groups they fall into where some share a document or a question, else
    how many samples there are."""

    mean: float
    low: float
    high: float
    n: int
    clusters: int


def estimate(scores: Sequence[float], clusters: Sequence[int] | None = None) -> Estimate:
    """The mean of scores in [0, 1] and its interval. `clusters` says which samples go together
    (see reports/statistics/clusters.py), None that none do.

    Raises:
        ValueError: there are no scores, or one is outside [0, 1].
    """
    if not scores:
        raise ValueError("estimate: no scores")
    # Summed exactly, then clipped: a mean of ones must be one.
    mean = math.fsum(scores) / len(scores)
    if clusters is None:
        return Estimate(mean, *wilson(mean, len(scores)), len(scores), len(scores))
    between = wilson(mean, effective_samples(scores, clusters))
    return Estimate(mean, *between, len(scores), len({*clusters}))


def estimate_drawn(samples: Sequence[Sequence[float]]) -> Estimate:
    """The mean of the scores of every sample's draws, and its interval over samples.

    Draws of one sample are no independent samples: how far the samples' means lie apart gives
    the number of independent draws that would say as much (the effective sample size of a
    clustered survey: Kish 1965; Korn and Graubard 1998), from the number of samples, where all
    draws of each agree, to that of all draws. One draw each is `estimate`.

    Raises:
        ValueError: as `estimate` does.
    """
    flat = [score for drawn in samples for score in drawn]
    plain = estimate(flat)
    if len(flat) == len(samples):
        return plain
    means = [fmean(drawn) for drawn in samples]
    spread = variance(means) / len(means) if len(means) > 1 else 0.0
    alone = plain.mean * (1.0 - plain.mean)
    effective = round(alone / spread) if spread > 0 else len(means)
    low, high = wilson(plain.mean, min(max(effective, len(means)), len(flat)))
    return Estimate(plain.mean, low, high, len(flat), len(samples))


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
        mean,
        max(0.0, mean - below),
        min(1.0, mean + above),
        sum(e.n for e in estimates),
        sum(e.clusters for e in estimates),
    )
