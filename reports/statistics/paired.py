"""Paired tests: two series on the very same samples.

Two models that answer the same questions are compared question by question, which needs far
fewer of them than comparing two means. Both tests are exact and two-sided, and assume no
distribution:

- McNemar's test asks of whole-sample success: of the samples that only one of the two got
  wholly right, could as lopsided a split come from a fair coin? (McNemar 1947, Psychometrika 12)
- the sign-flip permutation test asks the same of scores that may be shares (two of four values
  found): were the two alike, each difference could as well have the other sign. (Fisher 1935,
  The Design of Experiments, section 21)

On scores of 0 and 1 the two are one and the same. Where samples share a document or a question
(reports/statistics/clusters.py) the coin is tossed once for all of a cluster: both tests flip the
signs of the clusters' sums.

All p-values of a run, profile and kind of test are one family, corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from core.errors import UsageError
from reports.labels import Series
from reports.run.data import CellStats, RunData
from reports.statistics.many import holm

GRID = 2520
"""Differences are rounded to 1/2520, of which every share of up to ten golds is a multiple."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """`series` against `reference` on the samples that both have ended; `task` None pools
    the tasks of the mean.

    `difference` is the mean score of `series` less that of `reference`, a share of 1, and
    `p_score` its sign-flip p-value. `better` and `worse` count samples that only `series`, or
    only `reference`, got wholly right; `p_whole` is McNemar's p-value of the two. `p_score_holm`
    and `p_whole_holm` are corrected for all tests of the run. `clusters` of the pairs are
    independent of one another: all of them, where no samples share a document.
    """

    task: str | None
    length: int
    series: Series
    reference: Series
    pairs: int
    difference: float
    p_score: float
    better: int
    worse: int
    p_whole: float
    p_score_holm: float
    p_whole_holm: float
    clusters: int

    @property
    def differing(self) -> float:
        """The share of pairs that only one of the two got wholly right."""
        return (self.better + self.worse) / self.pairs


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two scores of a sample that both have ended, and the cluster that it is of."""

    ours: float
    theirs: float
    cluster: Hashable


def find_reference(run: RunData, name: str | None = None) -> Series:
    """The series that all others are compared with: the first of the plan, or the first
    that `name` fits, a model, a method, or `model:method`.

    Raises:
        UsageError: it fits none.
    """
    every = run.all_series
    if name is None:
        return every[0]
    for series in every:
        if name in (series.model, series.method, f"{series.model}:{series.method}"):
            return series
    known = ", ".join(f"{series.model}:{series.method}" for series in every)
    raise UsageError(f"reference {name!r}: not in this report, which has {known}")


def paired_tests(run: RunData, reference: Series, profile: str) -> list[PairedTest]:
    """Every other series against `reference`, in the order of panels, lengths and series;
    only where both have ended a sample in common. The p-values of them all are one family."""
    tests = []
    for task in run.panels:
        for length in run.lengths:
            for series in run.series_of(task):
                if series != reference:
                    pairs = _pairs(run, task, length, series, reference, profile)
                    if pairs:
                        tests.append(_test(task, length, series, reference, pairs))
    score, whole = holm([t.p_score for t in tests]), holm([t.p_whole for t in tests])
    return [
        replace(test, p_score_holm=a, p_whole_holm=b)
        for test, a, b in zip(tests, score, whole, strict=True)
    ]


def mcnemar_p(better: int, worse: int) -> float:
    """Two-sided p-value of so lopsided a split of `better` + `worse` fair coins; 1 of none."""
    return min(1.0, 2 * float(binom.cdf(min(better, worse), better + worse, 0.5)))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Share of all sign patterns of `differences` whose sum is as far from 0 as theirs.

    The distribution of the sum is built up difference by difference, so it is exact at any
    number of them.
    """
    steps = [step for d in differences if (step := round(d * GRID))]
    if not steps:
        return 1.0
    unit = math.gcd(*steps)
    steps = [step // unit for step in steps]
    if {*map(abs, steps)} == {1}:  # all coins weigh the same
        return mcnemar_p(steps.count(1), steps.count(-1))
    reach = sum(map(abs, steps))
    probability = np.zeros(2 * reach + 1)  # of each sum, from -reach to reach
    probability[reach] = 1.0
    for size in map(abs, steps):
        up, down = np.roll(probability, size), np.roll(probability, -size)
        probability = (up + down) / 2  # nothing comes round the ends: the sum never gets there
    far = abs(np.arange(-reach, reach + 1)) >= abs(sum(steps))
    return min(1.0, float(probability[far].sum()))


def _pairs(
    run: RunData, task: str | None, length: int, series: Series, reference: Series, profile: str
) -> list[_Pair]:
    """The samples that both have ended; of the mean, only if every task has some."""
    found: list[_Pair] = []
    for name in [task] if task else run.mean_tasks:
        ours, theirs = run.find(name, series, length), run.find(name, reference, length)
        pairs = _shared(ours, theirs, profile) if ours and theirs else []
        if not pairs:
            return []
        found += pairs
    return found


def _shared(ours: CellStats, theirs: CellStats, profile: str) -> list[_Pair]:
    scores = theirs.by_sample[profile]
    return [
        _Pair(score, scores[sample], (ours.task, ours.clusters.get(sample, sample)))
        for sample, score in ours.by_sample[profile].items()
        if sample in scores
    ]


def _test(
    task: str | None, length: int, series: Series, reference: Series, pairs: Sequence[_Pair]
) -> PairedTest:
    differences = [pair.ours - pair.theirs for pair in pairs]
    whole = [(pair.ours == 1.0) - (pair.theirs == 1.0) for pair in pairs]
    better, worse = whole.count(1), whole.count(-1)
    clusters = [pair.cluster for pair in pairs]
    count = len({*clusters})
    if count == len(pairs):
        p_score, p_whole = sign_flip_p(differences), mcnemar_p(better, worse)
    else:
        p_score = sign_flip_p(_sums(differences, clusters))
        p_whole = sign_flip_p(_sums(whole, clusters))
    return PairedTest(
        *(task, length, series, reference),
        pairs=len(pairs),
        difference=math.fsum(differences) / len(pairs),
        p_score=p_score,
        better=better,
        worse=worse,
        p_whole=p_whole,
        p_score_holm=math.nan,  # known when all tests are
        p_whole_holm=math.nan,
        clusters=count,
    )


def _sums(values: Sequence[float], clusters: Sequence[Hashable]) -> list[float]:
    """The values of each cluster, added up."""
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value
    return list(sums.values())
