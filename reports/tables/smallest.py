"""The smallest difference that a table can show, as a sentence beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from reports.labels import percent
from reports.run.data import RunData
from reports.statistics.paired import PairedTest
from reports.statistics.power import smallest_paired, smallest_unpaired

TERMS = "power 80%, two-sided alpha 5%, one test"
MOST_SIZES = 4
"""Numbers of samples that the sentence names; of more, the smallest and the largest."""


def of_accuracy(run: RunData) -> str:
    """Beside the table of accuracies: two of its numbers, not paired."""
    cells = [cell for cell in run.cells if cell.finished and cell.metric]
    single = {cell.independent for cell in cells}
    tasks = {*run.mean_tasks}
    means: defaultdict[tuple[object, int], int] = defaultdict(int)
    for cell in cells:
        if cell.task in tasks:
            means[cell.series, cell.length] += cell.independent
    return of_unpaired({*single, *means.values()})


def of_unpaired(sizes: Iterable[int]) -> str:
    """Two numbers of as many samples each."""
    shown = [
        f"{difference} of {size} samples each"
        for size in _named(sizes)
        if (difference := _points(smallest_unpaired(size)))
    ]
    if not shown:
        return ""
    return (
        "Smallest difference between two numbers, not paired, that can be shown "
        f"({TERMS}, around 50%; less near 0 and 100%): {'; '.join(shown)}."
    )


def of_pairs(tests: Sequence[PairedTest]) -> str:
    """Beside the table of paired tests."""
    shares = differing_shares(tests)
    shown = [
        f"{_points(smallest_paired(size, shares[size])) or 'none'} of {size} pairs, of which "
        f"{percent(shares[size])}% differ"
        for size in _named(shares)
    ]
    if not shown:
        return ""
    return (
        f"Smallest difference that McNemar's exact test can show ({TERMS}), where the two differ "
        f"as often as here: {'; '.join(shown)}."
    )


def differing_shares(tests: Iterable[PairedTest]) -> dict[int, float]:
    """Independent pairs of a test -> the share of pairs that only one got right, over all tests
    of as many."""
    differing: defaultdict[int, int] = defaultdict(int)
    pairs: defaultdict[int, int] = defaultdict(int)
    for test in tests:
        differing[test.clusters] += test.better + test.worse
        pairs[test.clusters] += test.pairs
    return {size: differing[size] / pairs[size] for size in pairs}


def _named(sizes: Iterable[int]) -> list[int]:
    ordered = sorted({*sizes})
    return ordered if len(ordered) <= MOST_SIZES else [ordered[0], ordered[-1]]


def _points(difference: float | None) -> str:
    return "" if difference is None else f"{100 * difference:.1f} points"
