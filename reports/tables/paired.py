"""Paired tests as tables: long for machines, wide and in words for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from reports.labels import Series
from reports.run.data import RunData
from reports.statistics.many import METHOD
from reports.statistics.paired import PairedTest, paired_tests
from reports.statistics.power import smallest_paired
from reports.tables.smallest import differing_shares
from tasks.scoring import PROFILES

SIGNIFICANT = 0.01
"""Corrected p-values below it are set in bold."""


@dataclass(frozen=True, slots=True)
class PairedRow:
    """A task and series across all lengths; None where there is no pair of samples."""

    task: str
    series: Series
    tests: tuple[PairedTest | None, ...]


def paired_rows(run: RunData, tests: Sequence[PairedTest]) -> list[PairedRow]:
    """A row a task and series that has a test; the rows of the mean come last."""
    found = {(test.task, test.series, test.length): test for test in tests}
    return [
        PairedRow(
            run.task_label(task),
            series,
            tuple(found.get((task, series, length)) for length in run.lengths),
        )
        for task in sorted(run.panels, key=lambda task: task is None)
        for series in run.series_of(task)
        if any((task, series, length) in found for length in run.lengths)
    ]


def paired_frame(run: RunData, tests: Mapping[str, Sequence[PairedTest]]) -> pd.DataFrame:
    """One row a test and profile. `difference_points`: mean score of `method` on `model` less
    the reference's, in percentage points; the p-values are two-sided, plain and (`_holm`)
    corrected for all tests of the profile. `smallest_points`: the smallest difference that so
    many independent pairs can show (power 80%, alpha 5%), see reports/statistics/power.py."""
    shares = {profile: differing_shares(found) for profile, found in tests.items()}
    return pd.DataFrame(
        [
            {
                "task": run.task_label(test.task),
                "length": test.length,
                "method": test.series.method,
                "model": test.series.model,
                "reference_method": test.reference.method,
                "reference_model": test.reference.model,
                "profile": profile,
                "pairs": test.pairs,
                "independent_pairs": test.clusters,
                "difference_points": 100 * test.difference,
                "p_sign_flip": test.p_score,
                "p_sign_flip_holm": test.p_score_holm,
                "only_this_right": test.better,
                "only_reference_right": test.worse,
                "p_mcnemar": test.p_whole,
                "p_mcnemar_holm": test.p_whole_holm,
                "smallest_points": _smallest(test.clusters, shares[profile][test.clusters]),
                "in_words": in_words(test),
            }
            for profile, found in tests.items()
            for test in found
        ]
    )


def paired_by_profile(run: RunData, reference: Series) -> dict[str, list[PairedTest]]:
    """The paired tests of each profile."""
    return {profile: paired_tests(run, reference, profile) for profile in PROFILES}


def _smallest(pairs: int, differing: float) -> float | None:
    found = smallest_paired(pairs, differing)
    return None if found is None else round(100 * found, 2)


def in_words(test: PairedTest) -> str:
    """`+31 points, p < 0.001 (Holm 0.012), 32 pairs`."""
    corrected = f"({METHOD} {p_number(test.p_score_holm)})"
    return f"{points(test.difference)}, {p_value(test.p_score)} {corrected}, {pair_count(test)}"


def points(difference: float) -> str:
    """0.31 -> `+31 points`, -0.004 -> `−0.4 points`."""
    amount = abs(100 * difference)
    number = f"{amount:.0f}" if amount >= 0.95 else f"{amount:.1f}"
    sign = "±" if number == "0.0" else "+" if difference > 0 else "−"
    return f"{sign}{number.removesuffix('.0')} point{'s' if number != '1' else ''}"


def p_value(p: float) -> str:
    """0.0002 -> `p < 0.001`, 0.0213 -> `p = 0.021`, 0.33 -> `p = 0.33`."""
    number = p_number(p)
    return f"p {number}" if number.startswith("<") else f"p = {number}"


def p_number(p: float) -> str:
    """0.0002 -> `< 0.001`, 0.0213 -> `0.021`, 0.33 -> `0.33`."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def pair_count(test: PairedTest) -> str:
    """`32 pairs`, or `32 pairs in 20 clusters` where some share a document or a question."""
    count = f"{test.pairs} pair{'s' if test.pairs != 1 else ''}"
    return count if test.clusters == test.pairs else f"{count} in {test.clusters} clusters"
