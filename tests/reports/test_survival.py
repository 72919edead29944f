"""The Kaplan-Meier estimate, against an example by hand and against SciPy's."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

from reports.figures.survival import half_life_text
from reports.statistics.survival import half_life, kaplan_meier

COUNTS = st.dictionaries(st.integers(0, 12), st.integers(0, 5), max_size=6)


def test_an_example_by_hand() -> None:
    curve = kaplan_meier({1: 1, 3: 1}, {2: 1, 4: 2})
    assert [(p.time, p.at_risk, p.ended) for p in curve] == [(1, 5, 1), (3, 3, 1)]
    assert [p.share for p in curve] == pytest.approx([4 / 5, 8 / 15])
    # Greenwood: 1 / (5 * 4) + 1 / (3 * 2) = 13/60; -log(8/15) = 0.628609;
    # sqrt(13/60) / 0.628609 = 0.740484; exp(1.959964 * 0.740484) = 4.26875.
    assert curve[1].low == pytest.approx((8 / 15) ** 4.26875, rel=1e-4)
    assert curve[1].high == pytest.approx((8 / 15) ** (1 / 4.26875), rel=1e-4)
    assert half_life(curve) is None
    assert half_life(kaplan_meier({1: 1, 3: 2}, {2: 1, 4: 1})) == 3


def test_a_half_life_is_said_in_words() -> None:
    assert half_life_text(3, 40) == "half-life 3 turns"
    assert half_life_text(1, 40) == "half-life 1 turn"
    assert half_life_text(None, 200) == "half-life over 200 turns"
    assert half_life_text(None, 0) == "no turn followed"


def test_what_is_censored_as_others_end_was_at_risk_with_them() -> None:
    (point,) = kaplan_meier({2: 1}, {2: 3})
    assert (point.at_risk, point.share) == (4, 0.75)


def test_all_may_end_or_none() -> None:
    (point,) = kaplan_meier({5: 3}, {})
    assert (point.share, point.low, point.high) == (0.0, 0.0, 0.0)
    assert kaplan_meier({}, {3: 2}) == []
    assert kaplan_meier({}, {}) == []
    with pytest.raises(ValueError, match="no negative number"):
        kaplan_meier({-1: 2}, {})


@given(COUNTS, COUNTS)
def test_it_is_scipys(ended: dict[int, int], censored: dict[int, int]) -> None:
    ours = [p for p in kaplan_meier(ended, censored) if 0 < p.share < 1]
    gone = [time for time, n in ended.items() for _ in range(n)]
    held = [time for time, n in censored.items() for _ in range(n)]
    if not ours:
        return
    theirs = ecdf(CensoredData(uncensored=gone, right=held)).sf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of places where a share is 0 or 1
        interval = theirs.confidence_interval(method="log-log")
    for point in ours:
        place = list(theirs.quantiles).index(point.time)
        assert point.share == pytest.approx(theirs.probabilities[place])
        assert point.low == pytest.approx(interval.low.probabilities[place])
        assert point.high == pytest.approx(interval.high.probabilities[place])
