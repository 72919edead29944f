"""How long things last: the Kaplan-Meier estimate with its intervals, from counts.

Source: Kaplan and Meier, J. Am. Stat. Assoc. 53 (1958); variance by Greenwood, interval on the
log(-log) scale (Kalbfleisch and Prentice 1980), which stays inside [0, 1]. Worked example: of 5
facts one is lost after 1 turn, one is still held when its text ends after 2, one is lost after 3,
two are held for 4. S(1) = 4/5; S(3) = 4/5 * 2/3 = 8/15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.arithmetic.intervals import Z95


@dataclass(frozen=True, slots=True)
class Survived:
    """The share that lasts longer than `time`, with its 95% interval; `at_risk` were there until
    then, `ended` of them ended at it."""

    time: int
    share: float
    low: float
    high: float
    at_risk: int
    ended: int


def kaplan_meier(ended: Mapping[int, int], censored: Mapping[int, int]) -> list[Survived]:
    """The estimate at each time at which something ended, times ascending.

    `ended` and `censored`: time -> how many ended then, or were last seen then (and were still
    there). What is censored at a time at which others end was at risk with them.

    Raises:
        ValueError: a negative time or count.
    """
    if any(time < 0 or n < 0 for counts in (ended, censored) for time, n in counts.items()):
        raise ValueError(f"kaplan_meier: got {ended} and {censored}, expected no negative number")
    left = sum(ended.values()) + sum(censored.values())
    share, spread = 1.0, 0.0
    found = []
    for time in sorted({*ended, *censored}):
        gone = ended.get(time, 0)
        if gone:
            share *= 1 - gone / left
            spread += gone / (left * (left - gone)) if left > gone else math.inf
            found.append(Survived(time, share, *_interval(share, spread), left, gone))
        left -= gone + censored.get(time, 0)
    return found


def half_life(curve: Sequence[Survived]) -> int | None:
    """The first time after which at most half is left, None where more is left at the end."""
    return next((point.time for point in curve if point.share <= 0.5), None)


def _interval(share: float, spread: float) -> tuple[float, float]:
    """`spread`: Greenwood's sum, the variance over the squared share."""
    if share <= 0.0:
        return 0.0, 0.0
    if share >= 1.0:
        return 1.0, 1.0
    width = Z95 * math.sqrt(spread) / -math.log(share)
    return share ** math.exp(width), share ** math.exp(-width)
