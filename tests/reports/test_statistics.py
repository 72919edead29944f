"""Our statistics against scipy's and statsmodels', on random data."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from core.arithmetic.intervals import wilson
from reports.run.load import load_run
from reports.statistics.clusters import cluster_variance, clusters_of, effective_samples
from reports.statistics.intervals import average, estimate
from reports.statistics.many import holm
from reports.statistics.paired import mcnemar_p, paired_tests, sign_flip_p
from reports.statistics.power import paired_power, smallest_paired, smallest_unpaired
from reports.tables.paired import pair_count
from tests.reports.conftest import BuildRun, Ended, Made

multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not there")
proportion = pytest.importorskip("statsmodels.stats.proportion")
tables = pytest.importorskip("statsmodels.stats.contingency_tables")
linear = pytest.importorskip("statsmodels.regression.linear_model")


def test_wilson_is_that_of_scipy_and_statsmodels() -> None:
    rng = random.Random(1)
    for _ in range(200):
        n = rng.randint(1, 900)
        right = rng.randint(0, n)
        ours = wilson(right / n, n)
        interval = stats.binomtest(right, n).proportion_ci(method="wilson")
        assert ours == pytest.approx((interval.low, interval.high), abs=1e-12)
        theirs = proportion.proportion_confint(right, n, method="wilson")
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_holm_is_that_of_statsmodels() -> None:
    rng = random.Random(2)
    for size in (1, 2, 7, 60):
        found = [rng.random() ** rng.choice([1, 6]) for _ in range(size)]
        found[-1] = found[0]  # equal ones, too
        assert holm(found) == pytest.approx(multitest.multipletests(found, method="holm")[1])
    assert holm([]) == []


def test_mcnemar_is_that_of_scipy_and_statsmodels() -> None:
    rng = random.Random(3)
    for _ in range(100):
        better, worse = rng.randint(0, 60), rng.randint(0, 60)
        table = [[9, better], [worse, 9]]
        theirs = tables.mcnemar(table, exact=True).pvalue
        assert mcnemar_p(better, worse) == pytest.approx(min(1.0, theirs), abs=1e-12)
        if better + worse:
            exact = stats.binomtest(better, better + worse).pvalue
            assert mcnemar_p(better, worse) == pytest.approx(exact, abs=1e-12)


def test_sign_flips_are_scipys_exact_permutations() -> None:
    rng = np.random.default_rng(4)
    for size in (2, 5, 11):
        ours = rng.choice([0.0, 0.25, 0.5, 1.0], size)
        theirs = rng.choice([0.0, 0.25, 0.5, 1.0], size)
        found = stats.permutation_test(
            (ours, theirs), lambda a, b: np.mean(a - b), permutation_type="samples",
            n_resamples=np.inf,
        )  # fmt: skip
        assert sign_flip_p(list(ours - theirs)) == pytest.approx(min(1.0, found.pvalue))


def test_the_mean_over_tasks_is_as_wide_as_a_bootstrap_of_it() -> None:
    rng = np.random.default_rng(5)
    tasks = [rng.binomial(1, share, 128).astype(float) for share in (0.3, 0.6, 0.8)]
    ours = average([estimate(list(scores)) for scores in tasks])
    found = stats.bootstrap(
        tasks, lambda *parts, axis: np.mean([np.mean(p, axis=axis) for p in parts], axis=0),
        n_resamples=4000, method="percentile", rng=rng, vectorized=True,
    ).confidence_interval  # fmt: skip
    assert (ours.low, ours.high) == pytest.approx((found.low, found.high), abs=0.012)


def test_the_variance_of_clusters_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(6)
    for groups in (2, 9, 40):
        clusters = [*range(groups), *rng.integers(0, groups, 3 * groups).tolist()]
        scores = rng.random(len(clusters))
        fitted = linear.OLS(scores, np.ones(len(scores))).fit(
            cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False}
        )
        theirs = float(fitted.bse[0]) ** 2 * groups / (groups - 1)
        assert cluster_variance(list(scores), clusters) == pytest.approx(theirs)


def test_an_interval_of_clusters_covers_what_it_should() -> None:
    """Of 400 runs of 30 documents with 4 questions each, right or wrong together."""
    rng = np.random.default_rng(7)
    clusters = [document for document in range(30) for _ in range(4)]
    covered = naive = 0
    for _ in range(400):
        shares = rng.beta(0.6, 0.4, 30)
        scores = [float(x) for x in rng.binomial(1, np.repeat(shares, 4))]
        clustered, plain = estimate(scores, clusters), estimate(scores)
        covered += clustered.low <= 0.6 <= clustered.high
        naive += plain.low <= 0.6 <= plain.high
    assert 0.92 <= covered / 400 <= 0.99
    assert naive / 400 < 0.88  # what taking them for independent would have covered


def test_independent_samples_keep_their_interval() -> None:
    scores = [1.0, 0.0, 0.5, 1.0]
    assert estimate(scores, [0, 1, 2, 3]) == estimate(scores)
    assert effective_samples([1.0] * 8, [0, 0, 1, 1, 2, 2, 3, 3]) == 4  # nothing varies
    assert effective_samples(scores, [5, 5, 5, 5]) == 1


def test_samples_go_together_by_question_and_by_document() -> None:
    def row(name: str, question: str, *documents: str) -> dict[str, object]:
        return {"id": name, "question": question, "golds": ["x"], "meta": {"documents": documents}}

    rows = [
        row("a", "who?", "d1"), row("b", "where?", "d2", "d3"), row("c", "when?", "d3"),
        row("d", "who?"), row("e", "why?"),
    ]  # fmt: skip
    found = clusters_of(rows)
    assert found["a"] == found["d"]  # drawn twice
    assert found["b"] == found["c"]  # on one document
    assert len({*found.values()}) == 3
    assert clusters_of([row("a", "who?", "d1"), row("b", "when?", "d2")]) == {}
    chained = [row("a", "1", "x"), row("b", "2", "y"), row("c", "3", "x", "y")]
    assert len({*clusters_of(chained).values()}) == 1


def test_a_question_drawn_again_widens_the_interval_and_weakens_the_test(
    build_run: BuildRun,
) -> None:
    asked = [Ended(1.0, 1.0, question=question) for question in ("a", "a", "a", "b")]
    cells = [
        Made("niah", 1024, "memagent", "pocket", 4, asked),
        Made("niah", 1024, "full_context", "pocket", 4, [replace(e, strict=0.0) for e in asked]),
    ]
    run = load_run(build_run(cells))
    score = run.cells[0].score("strict")
    assert score is not None
    assert (score.n, score.clusters, run.cells[0].independent) == (4, 2, 2)
    assert (score.low, score.high) == wilson(1.0, 2)
    (test,) = paired_tests(run, run.all_series[0], "strict")
    assert (test.pairs, test.clusters, test.p_score, test.p_whole) == (4, 2, 0.5, 0.5)
    assert pair_count(test) == "4 pairs in 2 clusters"


def test_unpaired_power_is_that_of_statsmodels() -> None:
    for n in (16, 64, 128, 1408):
        smallest = smallest_unpaired(n)
        assert smallest is not None
        power = proportion.power_proportions_2indep(smallest, 0.5 - smallest / 2, n).power
        assert power == pytest.approx(0.8, abs=0.002)
    assert smallest_unpaired(1) is None


def test_paired_power_is_what_simulated_runs_show() -> None:
    rng = np.random.default_rng(8)
    for pairs, differing, difference in ((40, 0.3, 0.2), (128, 0.2, 0.11), (128, 0.1, 0.1)):
        better, worse = (differing + difference) / 2, (differing - difference) / 2
        drawn = rng.multinomial(pairs, [better, worse, 1 - differing], 3000)
        found = np.mean([mcnemar_p(int(a), int(b)) <= 0.05 for a, b, _ in drawn])
        assert paired_power(pairs, differing, difference) == pytest.approx(found, abs=0.03)


def test_the_smallest_paired_difference_is_where_power_passes_four_in_five() -> None:
    smallest = smallest_paired(128, 0.2)
    assert smallest is not None
    assert paired_power(128, 0.2, smallest) >= 0.8 > paired_power(128, 0.2, smallest - 2e-4)
    assert smallest_paired(5, 0.5) is None  # 2 / 2**5 is above 5%
    never_against = smallest_paired(128, 0.0)
    assert never_against is not None
    assert stats.binom.sf(5, 128, never_against) == pytest.approx(0.8, abs=0.001)
    unpaired = smallest_unpaired(128)
    assert unpaired is not None
    assert never_against < smallest < unpaired
    assert math.isclose(smallest_paired(128, 0.5) or 0, unpaired, abs_tol=0.02)  # nothing shared
