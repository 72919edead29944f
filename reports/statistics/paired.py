"""Paired tests: two series on the very same samples.

Two models that answer the same questions are compared question by question, which needs far
fewer of them than comparing two means. Both tests are exact and two-sided, and assume no
distribution:

- McNemar's test asks of whole-sample success: of the samples that only one of the two got
  wholly right, could as lopsided a split come from a fair coin? (McNemar 1947, Psychometrika 12)
- the sign-flip permutation test asks the same of scores that may be shares (two of four values
  found): were the two alike, each difference could as well have the other sign. (Fisher 1935,
  The Design of Experiments, section 21)

On scores of 0 and 1 the two are one and the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import UsageError
from reports.labels import Series
from reports.run.data import RunData

GRID = 2520
"""Differences are rounded to 1/2520, of which every share of up to ten golds is a multiple."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """`series` against `reference` on the samples that both have ended; `task` None pools
    the tasks of the mean.

    `difference` is the mean score of `series` less that of `reference`, a share of 1, and
    `p_score` its sign-flip p-value. `better` and `worse` count samples that only `series`, or
    only `reference`, got wholly right; `p_whole` is McNemar's p-value of the two.
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
    only where both have ended a sample in common."""
    tests = []
    for task in run.panels:
        for length in run.lengths:
            for series in run.series_of(task):
                if series != reference:
                    pairs = _pairs(run, task, length, series, reference, profile)
                    if pairs:
                        tests.append(_test(task, length, series, reference, pairs))
    return tests


def mcnemar_p(better: int, worse: int) -> float:
    """Two-sided p-value of so lopsided a split of `better` + `worse` fair coins; 1 of none."""
    flips = better + worse
    tail = sum(math.comb(flips, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / float(2**flips))


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
) -> list[tuple[float, float]]:
    """(score of `series`, score of `reference`) of each sample that both have ended; of the
    mean, only if every task has some."""
    found: list[tuple[float, float]] = []
    for name in [task] if task else run.mean_tasks:
        ours, theirs = run.find(name, series, length), run.find(name, reference, length)
        if ours is None or theirs is None:
            return []
        a, b = ours.by_sample[profile], theirs.by_sample[profile]
        pairs = [(score, b[sample]) for sample, score in a.items() if sample in b]
        if not pairs:
            return []
        found += pairs
    return found


def _test(
    task: str | None,
    length: int,
    series: Series,
    reference: Series,
    pairs: Sequence[tuple[float, float]],
) -> PairedTest:
    differences = [ours - theirs for ours, theirs in pairs]
    better = sum(ours == 1.0 > theirs for ours, theirs in pairs)
    worse = sum(theirs == 1.0 > ours for ours, theirs in pairs)
    return PairedTest(
        task,
        length,
        series,
        reference,
        pairs=len(pairs),
        difference=math.fsum(differences) / len(pairs),
        p_score=sign_flip_p(differences),
        better=better,
        worse=worse,
        p_whole=mcnemar_p(better, worse),
    )
