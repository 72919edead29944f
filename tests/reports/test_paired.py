"""Paired tests: p-values worked out by hand, and pairs that are pairs."""

from __future__ import annotations

import random
from itertools import product

import pytest

from core.errors import UsageError
from reports.labels import Series
from reports.run.load import load_run
from reports.statistics.paired import (
    PairedTest,
    find_reference,
    mcnemar_p,
    paired_tests,
    sign_flip_p,
)
from reports.tables.paired import (
    in_words,
    p_value,
    paired_by_profile,
    paired_frame,
    paired_rows,
    points,
)
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

BASE, RL = Series("memagent", "base"), Series("memagent", "rl")


def two_models() -> list[Made]:
    """On niah the trained model gains 5 of 6 and loses none; on vt both have halves."""
    half = Ended(0.5, 0.5)
    return [
        Made("niah", 1024, "memagent", "base", 6, [WRONG] * 5 + [RIGHT]),
        Made("niah", 1024, "memagent", "rl", 6, [RIGHT] * 6),
        Made("vt", 1024, "memagent", "base", 3, [half, half, WRONG]),
        Made("vt", 1024, "memagent", "rl", 3, [RIGHT, half]),
    ]


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        (0, 0, 1.0),
        (3, 3, 1.0),  # 2 x 42/64, at most 1
        (5, 0, 2 / 32),
        (0, 5, 2 / 32),
        (9, 1, 2 * (1 + 10) / 1024),
        (32, 0, 2 / 2**32),
    ],
)
def test_mcnemar_by_hand(better: int, worse: int, p: float) -> None:
    assert mcnemar_p(better, worse) == pytest.approx(p, rel=1e-12)


def test_sign_flips_by_hand() -> None:
    assert sign_flip_p([]) == sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([1.0] * 5 + [0.0] * 20) == 2 / 32
    # +-0.5 +-0.25 +-0.25 is at least 0.5 away from 0 in 6 of its 8 forms.
    assert sign_flip_p([0.5, 0.25, -0.25]) == 6 / 8


def test_sign_flips_equal_counting_all_patterns() -> None:
    rng = random.Random(3)
    for _ in range(20):
        found = [rng.choice([-1, -0.6, -0.25, 0, 0.2, 1 / 3, 0.75, 1]) for _ in range(9)]
        far = [
            abs(sum(sign * d for sign, d in zip(signs, found, strict=True)))
            >= abs(sum(found)) - 1e-9
            for signs in product((1, -1), repeat=len(found))
        ]
        assert sign_flip_p(found) == pytest.approx(sum(far) / len(far))


def test_on_zeros_and_ones_both_tests_are_one() -> None:
    for better, worse in ((9, 1), (20, 7), (64, 40)):
        both = sign_flip_p([1.0] * better + [-1.0] * worse)
        assert both == pytest.approx(mcnemar_p(better, worse))


def test_series_are_compared_on_the_samples_that_both_ended(build_run: BuildRun) -> None:
    run = load_run(build_run(two_models(), settings_for("base", "rl")))
    pooled, niah, vt = paired_tests(run, find_reference(run), "strict")
    assert niah == PairedTest(
        "niah", 1024, RL, BASE, pairs=6, difference=5 / 6, p_score=2 / 32,
        better=5, worse=0, p_whole=2 / 32, p_score_holm=4 / 32, p_whole_holm=4 / 32, clusters=6,
    )  # fmt: skip
    # The third sample of vt has not ended with the trained model: two pairs, one of them equal.
    assert (vt.pairs, vt.difference, vt.p_score) == (2, 0.25, 1.0)
    assert (vt.better, vt.worse) == (1, 0)
    assert (pooled.task, pooled.pairs, pooled.better) == (None, 8, 6)
    assert pooled.difference == pytest.approx(5.5 / 8)


def test_other_samples_are_no_pairs(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "base", 2, [RIGHT, RIGHT]),
        Made("niah", 2048, "memagent", "rl", 2, [RIGHT, RIGHT]),
        Made("niah", 1024, "full_context", "rl", 2, []),
    ]
    run = load_run(build_run(cells, settings_for("base", "rl")))
    assert paired_tests(run, BASE, "strict") == []
    assert paired_frame(run, paired_by_profile(run, BASE)).empty


def test_a_failed_sample_is_a_zero_of_its_pair(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "base", 1, [Ended(error="timeout")]),
        Made("niah", 1024, "memagent", "rl", 1, [RIGHT]),
    ]
    (test,) = paired_tests(load_run(build_run(cells)), BASE, "strict")
    assert (test.pairs, test.difference, test.better) == (1, 1.0, 1)


def test_the_reference_is_the_first_or_the_one_named(build_run: BuildRun) -> None:
    run = load_run(build_run(two_models(), settings_for("base", "rl")))
    assert find_reference(run) == find_reference(run, "memagent") == BASE
    assert find_reference(run, "rl") == find_reference(run, "rl:memagent") == RL
    with pytest.raises(UsageError, match="which has base:memagent, rl:memagent"):
        find_reference(run, "gru")


def test_rows_and_words(build_run: BuildRun) -> None:
    run = load_run(build_run(two_models(), settings_for("base", "rl")))
    tests = paired_tests(run, BASE, "strict")
    rows = paired_rows(run, tests)
    assert [row.task for row in rows] == ["niah", "vt", "mean of all tasks"]
    assert rows[0].tests == (tests[1],)
    assert in_words(tests[1]) == "+83 points, p = 0.062 (Holm 0.12), 6 pairs"
    frame = paired_frame(run, paired_by_profile(run, BASE)).query(
        "profile == 'strict' and task == 'niah'"
    )
    assert list(frame["difference_points"]) == [pytest.approx(500 / 6)]
    assert [points(x) for x in (0.31, -0.066, 0.01, 0.004, -0.0001, 0)] == [
        *("+31 points", "−7 points", "+1 point", "+0.4 points", "±0 points", "±0 points")
    ]
    assert [p_value(p) for p in (1e-9, 0.00099, 0.0213, 0.334, 1.0)] == [
        *("p < 0.001", "p < 0.001", "p = 0.021", "p = 0.33", "p = 1.00")
    ]
