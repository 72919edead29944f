"""The simulated schedules, on work whose makespans are known."""

from __future__ import annotations

import random

import pytest

from perf.schedule import Chain, Work, bound, by_cell, ours, parts_s, shared, simulate


def work(chains: list[Chain], most: int = 1, loading_s: float = 0.0, gpus: int = 1) -> Work:
    """A second a turn, whatever else the replica has in work."""
    return Work("m", tuple(chains), lambda chain, n: 1.0, most, loading_s, gpus)


def chain(turns: int, cell: int = 0) -> Chain:
    return Chain(cell, turns, 100.0, 10.0)


@pytest.mark.parametrize(
    ("replicas", "most", "seconds"), [(1, 1, 12), (2, 1, 6), (1, 3, 4), (4, 1, 4)]
)
def test_alike_samples_fill_the_places(replicas: int, most: int, seconds: int) -> None:
    # Six samples of two turns: three, one and a half or one round of all places.
    rounds = simulate([chain(2)] * 6, work([chain(2)] * 6, most), replicas)
    assert rounds == pytest.approx(seconds)


def test_a_replica_in_which_more_runs_is_slower() -> None:
    slower = Work("m", (), lambda one, n: float(n), 2, 0.0, 1)
    # Two share it for 2 x 3 s; then the longer has 2 of its turns left for itself.
    assert simulate([chain(5), chain(3)], slower, 1) == pytest.approx(2 * 3 + 2)


def test_a_long_sample_at_the_end_of_each_cell_costs_the_published_order_most() -> None:
    chains = [one for cell in range(4) for one in ([chain(2, cell)] * 4 + [chain(10, cell)])]
    one = work(chains)
    least, best, published = bound([one], 2), ours([one], 2), by_cell([one], 2)
    assert least == pytest.approx((4 * 4 * 2 + 4 * 10) / 2)
    assert best == pytest.approx(least)
    assert published > 1.3 * best


def test_models_that_fit_run_side_by_side_by_their_work() -> None:
    big, small = work([chain(3)] * 12, loading_s=5), work([chain(3)] * 4, loading_s=5)
    assert shared([big, small], 4) == [3, 1]
    assert ours([big, small], 4) == pytest.approx(5 + 12)
    assert by_cell([big, small], 4) == pytest.approx(5 + 9 + 5 + 3)
    assert bound([big, small], 4) == pytest.approx(5 + 12)


def test_a_few_long_samples_cannot_fill_a_batch() -> None:
    # A replica of four places does four turns in the time of two, and one in that of one.
    long, short = chain(100), chain(1)
    one = Work("m", (long, long, *[short] * 4), lambda c, n: (1.0 + n / 4) / 1.25, 4, 0.0, 1)
    # All six at the pace of four: 204 x 1.6 / 4; the two long ones by themselves: 100 x 1.2. The
    # short ones go twice beside them, which costs 2 x 0.4 more.
    parts = dict(parts_s(one, 1))
    assert parts["all work, every place taken"] == pytest.approx(204 * 1.6 / 4)
    assert parts["the longest samples by themselves"] == pytest.approx(100 * 1.2)
    assert ours([one], 1) == pytest.approx(98 * 1.2 + 2 * 1.6)
    assert 100 * 1.2 < bound([one], 1) <= ours([one], 1)


def test_models_that_would_end_far_apart_come_one_after_another() -> None:
    works = [work([chain(3)] * 12, loading_s=2)] * 3
    # Side by side two of them take 12 x 3 s on one replica each.
    assert shared(works, 4) == [2, 1, 1]
    assert ours(works, 4) == pytest.approx(3 * (2 + 9))
    assert bound(works, 4) == pytest.approx(2 + 3 * 9)


def test_models_that_do_not_fit_come_one_after_another() -> None:
    two = [work([chain(2)] * 2, loading_s=5, gpus=2)] * 2
    assert ours(two, 2) == bound(two, 2) == pytest.approx(2 * (5 + 4))


def test_what_others_do_beside_the_longest_counts() -> None:
    """12 long ones and 20 short ones at 32 places: while the short ones are there, the long ones
    are slowed; once they have gone, the places stand empty."""
    long, short = [chain(257)] * 12, [chain(33)] * 36
    one = Work("m", (*long, *short), lambda c, n: n ** (1 - 0.27), 32, 0.0, 1)
    parts = dict(parts_s(one, 1))
    each = 257 * 12**0.73  # the pace of a long one while the 12 are alone
    assert parts["the longest samples by themselves"] == pytest.approx(each, rel=1e-3)
    assert parts["all work, every place taken"] == pytest.approx((12 * 257 + 36 * 33) / 32**0.27)
    assert bound([one], 1) > 1.1 * each
    assert bound([one], 1) <= ours([one], 1) < 1.03 * bound([one], 1)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("power", [0.0, 0.3, 0.8, 1.0])
def test_no_simulated_schedule_is_faster_than_the_bound(replicas: int, power: float) -> None:
    rng = random.Random(0)
    for _ in range(20):
        chains = [chain(rng.choice((1, 3, 10, 40, 200))) for _ in range(rng.randint(1, 40))]
        one = Work("m", tuple(chains), lambda c, n: n ** (1 - power), rng.randint(1, 9), 0.0, 1)
        least = bound([one], replicas)
        for order in (
            chains,
            sorted(chains, key=lambda c: -c.turns),
            rng.sample(chains, len(chains)),
        ):
            assert simulate(order, one, replicas) >= least * (1 - 1e-9)
