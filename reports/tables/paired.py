"""Paired tests as tables: long for machines, wide and in words for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reports.labels import Series
from reports.run.data import RunData
from reports.statistics.paired import PairedTest, paired_tests
from tasks.scoring import PROFILES

SIGNIFICANT = 0.01
"""p-values below it are set in bold. It is a mark for the eye; the p-values are not corrected
for how many there are."""


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


def paired_frame(run: RunData, reference: Series) -> pd.DataFrame:
    """One row a test and profile. `difference_points`: mean score of `method` on `model` less
    the reference's, in percentage points; the p-values are two-sided and not corrected."""
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
                "difference_points": 100 * test.difference,
                "p_sign_flip": test.p_score,
                "only_this_right": test.better,
                "only_reference_right": test.worse,
                "p_mcnemar": test.p_whole,
                "in_words": in_words(test),
            }
            for profile in PROFILES
            for test in paired_tests(run, reference, profile)
        ]
    )


def in_words(test: PairedTest) -> str:
    """`+31 points, p < 0.001, 32 pairs`."""
    return f"{points(test.difference)}, {p_value(test.p_score)}, {pair_count(test)}"


def points(difference: float) -> str:
    """0.31 -> `+31 points`, -0.004 -> `−0.4 points`."""
    amount = abs(100 * difference)
    number = f"{amount:.0f}" if amount >= 0.95 else f"{amount:.1f}"
    sign = "±" if number == "0.0" else "+" if difference > 0 else "−"
    return f"{sign}{number.removesuffix('.0')} point{'s' if number != '1' else ''}"


def p_value(p: float) -> str:
    """0.0002 -> `p < 0.001`, 0.0213 -> `p = 0.021`, 0.33 -> `p = 0.33`."""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def pair_count(test: PairedTest) -> str:
    """`32 pairs`."""
    return f"{test.pairs} pair{'s' if test.pairs != 1 else ''}"
