"""Rates out of timed rounds: a machine's noise must not become a rate, nor an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.estimate.rounds import MOST_ROUNDS, ROUNDS, Round, measured
from core.errors import ServerDied

PROMPT = 500
READ_S = 0.01
"""Of a prompt."""
WRITE_S = 0.002
"""Of each token after a reply's first."""


class ScriptedServer:
    """Takes as long as it should, and what `noise` adds to round i of the replies' length."""

    def __init__(self, noise: Callable[[int, int], float] = lambda i, tokens: 0.0) -> None:
        self.noise = noise
        self.played: list[tuple[int, int]] = []

    async def __call__(self, turns: int, reply_tokens: int) -> Round:
        number = sum(tokens == reply_tokens for _, tokens in self.played)
        self.played.append((turns, reply_tokens))
        seconds = turns * (READ_S + WRITE_S * (reply_tokens - 1))
        seconds += self.noise(number, reply_tokens)
        return Round(seconds, turns, turns * PROMPT, turns * reply_tokens)


async def test_a_quiet_machine_gives_its_rates_in_the_fewest_rounds() -> None:
    server = ScriptedServer()
    rate = await measured(server, 4, 12, 64)
    assert rate.in_flight == 4
    assert rate.prompt_tokens_per_s == pytest.approx(PROMPT / READ_S)
    assert rate.reply_tokens_per_s == pytest.approx(1 / WRITE_S, rel=1e-3)
    warm, rest = server.played[:2], server.played[2:]
    assert warm == [(4, 1), (4, 64)]
    assert rest == [(12, 1), (12, 64)] * ROUNDS


async def test_a_slow_first_round_of_each_shape_counts_for_nothing() -> None:
    slow = ScriptedServer(lambda i, tokens: 100.0 if i == 0 else 0.0)
    assert await measured(slow, 4, 12, 64) == await measured(ScriptedServer(), 4, 12, 64)


async def test_one_undisturbed_round_of_each_kind_is_enough() -> None:
    # Round 0 warms up. Reading is disturbed in all rounds but the third, writing in all but one.
    noisy = ScriptedServer(lambda i, tokens: 0.0 if i == (3 if tokens == 1 else 2) else 0.7)
    assert await measured(noisy, 4, 12, 64) == await measured(ScriptedServer(), 4, 12, 64)


async def test_rounds_are_added_until_the_replies_part_can_be_told() -> None:
    # As it was met: reading was disturbed, so that the prompts alone seemed to take as long.
    def noise(i: int, tokens: int) -> float:
        return 5.0 if tokens == 1 and i <= ROUNDS + 1 else 0.0

    server = ScriptedServer(noise)
    rate = await measured(server, 4, 12, 64)
    assert rate == await measured(ScriptedServer(), 4, 12, 64)
    assert len(server.played) == 2 + 2 * (ROUNDS + 2)


async def test_a_machine_that_is_never_quiet_ends_in_an_error_that_says_what_to_do() -> None:
    server = ScriptedServer(lambda i, tokens: 50.0 if tokens == 1 else 0.0)
    with pytest.raises(ServerDied, match=r"4 in flight 12 turns took 1\.632 s.*more --turns"):
        await measured(server, 4, 12, 64)
    assert len(server.played) == 2 + 2 * MOST_ROUNDS
