"""p-values of many tests at once, corrected: Holm's step-down method.

Of m tests of which none has anything to find, the chance that any corrected p-value is below
alpha is at most alpha, however the tests depend on one another (Holm 1979, Scandinavian Journal
of Statistics 6). It is never weaker than Bonferroni's.
"""

from __future__ import annotations

from collections.abc import Sequence

METHOD = "Holm"


def holm(p_values: Sequence[float]) -> list[float]:
    """The corrected p-values, in the order given; the whole list is one family."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected = [1.0] * len(p_values)
    floor = 0.0
    for rank, place in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = floor
    return corrected
