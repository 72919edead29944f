"""Intervals against values from elsewhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.arithmetic.intervals import wilson
from reports.statistics.intervals import average, estimate, estimate_drawn


def test_wilson_equals_the_textbook_values() -> None:
    # scipy.stats.binomtest(k, n).proportion_ci(method="wilson") of 8/10, 0/20 and 95/100
    assert wilson(0.8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611252), abs=1e-6)
    assert wilson(0.95, 100) == pytest.approx((0.8882495, 0.9784563), abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_an_interval_lies_in_0_to_1_around_its_mean(scores: list[float]) -> None:
    got = estimate(scores)
    assert 0.0 <= got.low <= got.mean <= got.high <= 1.0
    assert got.high > got.low  # never of width zero, however equal the scores
    assert got.n == len(scores)


def test_shares_get_the_interval_of_their_mean() -> None:
    got = estimate([1.0, 0.5, 0.25, 0.25])
    assert got.mean == 0.5
    assert (got.low, got.high) == wilson(0.5, 4)


def test_the_average_weighs_tasks_not_samples() -> None:
    few, many = estimate([1.0] * 4), estimate([0.0] * 400)
    got = average([few, many])
    assert got.mean == 0.5
    assert got.n == 404
    below = math.hypot(few.mean - few.low, 0.0) / 2  # `many` is at 0 and has nothing below
    assert got.low == pytest.approx(0.5 - below)
    assert average([few]) == few


def test_nothing_has_no_estimate() -> None:
    for call in (lambda: estimate([]), lambda: average([]), lambda: wilson(0.5, 0)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        estimate([1.5])


def test_one_draw_each_is_the_plain_estimate() -> None:
    scores = [1.0, 0.0, 0.5, 1.0, 1.0]
    assert estimate_drawn([[score] for score in scores]) == estimate(scores)


def test_draws_that_agree_say_no_more_than_their_samples() -> None:
    samples = [[1.0] * 4] * 6 + [[0.0] * 4] * 4
    got = estimate_drawn(samples)
    assert (got.mean, got.n) == (0.6, 40)
    assert (got.low, got.high) == wilson(0.6, 10)
    sure = estimate_drawn([[1.0] * 4] * 10)
    assert (sure.low, sure.high) == wilson(1.0, 10)


def test_draws_as_of_a_coin_say_nearly_as_much_as_samples() -> None:
    # Ten samples of four draws, as many right as a fair coin gives: 0.25 is the variance of a
    # draw, 0.0625 that of a mean of four. By hand: means 0, 1/4, 1/4, 1/2 x 4, 3/4, 3/4, 1.
    means = [0, 1, 1, 2, 2, 2, 2, 3, 3, 4]
    samples = [[1.0] * right + [0.0] * (4 - right) for right in means]
    # Sample variance of the means: (2 x 0.25 + 4 x 0.0625) / 9 = 1/12, of their mean 1/120.
    assert (estimate_drawn(samples).low, estimate_drawn(samples).high) == wilson(0.5, 30)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=4), min_size=1))
def test_the_interval_over_samples_lies_between_the_two_plain_ones(
    samples: list[list[float]],
) -> None:
    got = estimate_drawn(samples)
    draws = sum(map(len, samples))
    few, many = (wilson(got.mean, n) for n in (len(samples), draws))
    assert few[0] <= got.low <= many[0] <= got.mean <= many[1] <= got.high <= few[1]
