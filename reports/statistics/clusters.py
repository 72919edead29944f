"""Samples that are not independent: draws of one question, questions on one document.

Their scores rise and fall together, so n of them say less than n apart. The interval is Wilson's
at an effective number of samples: n over the design effect, which is the cluster-robust variance
of the mean over that of independent samples, with Student's t in the normal quantile's place
for the few clusters that the variance is estimated from (Korn and Graubard 1998, Survey
Methodology 24; Franco et al. 2019, Journal of Survey Statistics and Methodology 7).

Filler that every sample of a task has (an essay haystack, a noise line) makes no cluster: it is
part of what the task is.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from scipy.stats import t as student

from core.arithmetic.intervals import Z95


def clusters_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Sample id -> the number of its cluster, of the samples of one cell (one row each); empty
    where no two share anything. They do when question and golds are the same, or when a document
    that the answer is in is (`meta["documents"]`, names of documents)."""
    owner: dict[Hashable, int] = {}
    parent: list[int] = []

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    ids = []
    for place, row in enumerate(rows):
        ids.append(row["id"])
        parent.append(place)
        asked = row["question"], json.dumps(row["golds"])
        for shared in (asked, *row["meta"].get("documents", ())):
            first, own = root(owner.setdefault(shared, place)), root(place)
            parent[max(first, own)] = min(first, own)
    roots = [root(place) for place in range(len(parent))]
    if len({*roots}) == len(roots):
        return {}
    return dict(zip(ids, roots, strict=True))


def effective_samples(scores: Sequence[float], clusters: Sequence[int]) -> float:
    """How many independent samples say as much of the mean as these; at most as many as there
    are. Where the scores do not vary, nothing can be estimated, and each cluster counts once."""
    n, groups = len(scores), len({*clusters})
    if groups == n:
        return float(n)
    if groups == 1:
        return 1.0
    mean = math.fsum(scores) / n
    apart = math.fsum((score - mean) ** 2 for score in scores) / (n - 1) / n
    if apart == 0.0:
        return float(groups)
    effect = max(1.0, cluster_variance(scores, clusters) / apart)
    return n / effect * (Z95 / _t95(groups - 1)) ** 2


def cluster_variance(scores: Sequence[float], clusters: Sequence[int]) -> float:
    """The variance of the mean, robust to whatever samples of a cluster have in common (Liang and
    Zeger 1986), with the factor G / (G - 1) for G clusters, of which there must be two."""
    mean = math.fsum(scores) / len(scores)
    sums: defaultdict[int, float] = defaultdict(float)
    for score, cluster in zip(scores, clusters, strict=True):
        sums[cluster] += score - mean
    squares = math.fsum(value**2 for value in sums.values())
    return squares / len(scores) ** 2 * len(sums) / (len(sums) - 1)


@lru_cache(maxsize=1024)
def _t95(degrees: int) -> float:
    return float(student.ppf(0.975, degrees))
