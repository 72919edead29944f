"""Advantages against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from training.rl.advantages import (
    answer_advantages,
    informative,
    mixed_advantages,
    overlong_penalty,
    token_advantages,
    trajectory_advantages,
    turn_advantages,
)

close = torch.testing.assert_close

REWARDS_GT = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, 9.0], [-1.0, 9.0, 9.0]])
REACHED_GT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
TURN_GT = torch.tensor([[2 / 3, -1.0, 0.0], [2 / 3, 1.0, 0.0], [-4 / 3, 0.0, 0.0]])


def test_a_trajectory_is_compared_with_its_group() -> None:
    close(trajectory_advantages(torch.tensor([1, 0, 0, 1])), torch.tensor([0.5, -0.5, -0.5, 0.5]))


def test_std_normalization_is_an_option_with_the_unbiased_std() -> None:
    got = trajectory_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), normalize_std=True)
    close(got, torch.tensor([1.5, -0.5, -0.5, -0.5]))  # std 0.5


@pytest.mark.parametrize("normalize_std", [False, True])
def test_equal_rewards_and_groups_of_one_have_no_advantage(normalize_std: bool) -> None:
    for size in (1, 4):
        got = trajectory_advantages(torch.full((size,), 0.5), normalize_std=normalize_std)
        close(got, torch.zeros(size))


def test_a_turn_is_compared_with_the_rollouts_that_reached_it() -> None:
    close(turn_advantages(REWARDS_GT, REACHED_GT), TURN_GT)


@pytest.mark.parametrize("seed", range(3))
def test_advantages_sum_to_zero_over_the_group(seed: int) -> None:
    torch.manual_seed(seed)
    close(trajectory_advantages(torch.randn(16)).sum(), torch.tensor(0.0), atol=1e-5, rtol=0)
    reached_GT = torch.arange(7) < torch.randint(1, 8, (16, 1))
    got_GT = turn_advantages(torch.randn(16, 7), reached_GT)
    close(got_GT.sum(dim=0), torch.zeros(7), atol=1e-5, rtol=0)
    assert not got_GT[~reached_GT].any()


def test_alpha_mixes_trajectory_and_turn() -> None:
    trajectory_G = torch.tensor([1.0, 0.0, -1.0])
    expected_GT = torch.tensor(
        [[0.9 + 0.2 / 3, 0.8, 0.9], [0.2 / 3, 0.1, 0.0], [-0.9 - 0.4 / 3, 0.0, 0.0]]
    )
    close(mixed_advantages(trajectory_G, TURN_GT, REACHED_GT, 0.9), expected_GT)
    close(answer_advantages(trajectory_G, 0.9), torch.tensor([0.9, 0.0, -0.9]))


def test_a_group_of_equal_rewards_is_not_informative() -> None:
    assert not informative(torch.tensor([1.0, 1.0, 1.0]))
    assert not informative(torch.tensor([0.5]))
    assert informative(torch.tensor([1.0, 1.0, 0.75]))


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (16384, 0.0), (17408, -0.25), (18432, -0.5), (20480, -1.0), (30000, -1.0)],
)
def test_overlong_replies_lose_linearly_within_the_cache(tokens: int, penalty: float) -> None:
    assert overlong_penalty(tokens, limit=20480, cache=4096) == penalty


@pytest.mark.parametrize("cache", [0, 101])
def test_a_cache_outside_the_limit_is_refused(cache: int) -> None:
    with pytest.raises(ValueError, match="1 to the limit of 100 tokens"):
        overlong_penalty(1, limit=100, cache=cache)


def test_a_token_is_credited_with_what_it_changed() -> None:
    # After 1 all agree; 2 or 3 is the first choice, then 4 or 5. The last reply is cut short.
    replies = [(1, 2, 4, 9), (1, 2, 5, 9), (1, 3, 9), (1, 3)]
    got = token_advantages([1.0, 0.0, -1.0, -1.0], replies)
    assert got == [(0.0, 0.75, 0.5, 0.0), (0.0, 0.75, -0.5, 0.0), (0.0, -0.75, 0.0), (0.0, -0.75)]


def test_a_reply_s_token_credits_sum_to_its_advantage() -> None:
    generator = torch.Generator().manual_seed(1)
    replies = [
        tuple(torch.randint(0, 3, (length,), generator=generator).tolist())
        for length in (7, 9, 4, 8, 7, 6, 9, 5)
    ]
    values = torch.randn(len(replies), generator=generator)
    sums = [sum(one) for one in token_advantages(values.tolist(), replies)]
    # One that another goes on from, or says too, is not told apart by a token of its own.
    alone = [sum(other[: len(one)] == one for other in replies) == 1 for one in replies]
    close(torch.tensor(sums)[alone], trajectory_advantages(values)[alone])
    assert sum(alone) > 4


def test_replies_that_are_all_alike_change_nothing() -> None:
    assert token_advantages([0.1, 0.1, 0.1], [(1, 2)] * 3) == [(0.0, 0.0)] * 3
