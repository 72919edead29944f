"""Money: what a run may cost is never passed, and what it has cost is known after any stop."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from core.errors import BudgetSpent, DataMissing, RequestFailed, RequestTimeout, UsageError
from serving.client import Client
from serving.limits.budget import CAUTION, Budget, Price, Spent, price_of, read_prices
from serving.limits.gate import Gate, Rates
from tests.serving.scripted import Answer, Asked, ScriptedServer, Time, ask, error, reply

PRICE = Price(input=1.0, output=10.0)
PROMISED = 7
"""max_tokens of `ask`."""


class Meter:
    """What the server takes: its own account."""

    def __init__(self, longest: float, fails: float = 0.0) -> None:
        self.usd = 0.0
        self._rng = random.Random(7)
        self._longest, self._fails = longest, fails

    async def answer(self, asked: Asked) -> Answer:
        await asyncio.sleep(0)
        if self._rng.random() < self._fails:
            return error(503, "away")
        prompt = self._rng.randint(3, 30)
        spoken = self._rng.randint(1, int(PROMISED * self._longest))
        self.usd += PRICE.usd(prompt, spoken)
        usage = {"prompt_tokens": prompt, "completion_tokens": spoken}
        message = {"message": {"content": "Here."}, "finish_reason": "stop"}
        return reply({"choices": [message], "usage": usage})


def client_of(server: ScriptedServer, budget: Budget, **options: float) -> Client:
    client = server.client(patience=Time().patience(), **options)
    client._gate = Gate(Rates(), budget, PRICE)
    return client


async def spend(client: Client) -> int:
    """64 at once, until there is no room; how many were answered."""
    answered = 0

    async def worker() -> None:
        nonlocal answered
        while True:
            try:
                await ask(client)
            except BudgetSpent:
                return
            answered += 1

    await asyncio.gather(*(worker() for _ in range(64)))
    return answered


@pytest.mark.parametrize("longest", [1.0, CAUTION], ids=["as promised", "longer than promised"])
@pytest.mark.parametrize("limit", [0.0005, 0.01, 0.05])
async def test_the_budget_is_never_passed(limit: float, longest: float) -> None:
    meter = Meter(longest, fails=0.02)
    kept: list[Spent] = []
    server = ScriptedServer(meter.answer)
    budget = Budget(limit)
    budget.go_on(0.0, kept.append)
    async with server.running(), client_of(server, budget) as client:
        answered = await spend(client)
    assert meter.usd <= limit
    assert max(spent.usd for spent in kept) <= limit
    assert budget.spent_usd == pytest.approx(meter.usd)
    assert budget.held_usd == 0.0
    if limit == 0.05:
        assert answered > 64
        assert meter.usd >= 0.9 * limit


async def test_a_run_that_was_killed_goes_on_from_the_most_it_can_have_cost() -> None:
    kept: list[Spent] = []
    budget = Budget(1.0)
    budget.go_on(0.25, kept.append)
    await budget.hold(0.5)
    assert kept == [Spent(0.25, 1.0), Spent(0.75, 1.0)]
    again = Budget(1.0)
    again.go_on(kept[-1].usd, kept.append)
    with pytest.raises(BudgetSpent, match=r"0\.7500 USD are spent"):
        await again.hold(0.5)


async def test_a_request_whose_end_is_unknown_counts_whole() -> None:
    budget = Budget(1.0)
    server = ScriptedServer(Answer(hang=True))
    async with server.running(), client_of(server, budget, reply_timeout_s=0.1) as client:
        with pytest.raises(RequestTimeout):
            await ask(client)
    assert budget.spent_usd > PRICE.usd(0, PROMISED)


async def test_a_refusal_costs_nothing() -> None:
    budget = Budget(1.0)
    server = ScriptedServer(error(400, "no"))
    async with server.running(), client_of(server, budget) as client:
        with pytest.raises(RequestFailed):
            await ask(client)
    assert budget.spent_usd == 0.0


async def test_a_turn_knows_what_it_cost() -> None:
    budget = Budget(None)
    usage = {"prompt_tokens": 100, "completion_tokens": 5}
    said = {"choices": [{"message": {"content": "Here."}, "finish_reason": "stop"}], "usage": usage}
    server = ScriptedServer(reply(said))
    async with server.running(), client_of(server, budget) as client:
        turn = await ask(client)
    assert turn.usd == pytest.approx(150e-6)
    assert budget.spent_usd == pytest.approx(150e-6)


def test_prices_are_read_and_faults_named(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    with pytest.raises(DataMissing, match="USD for a million tokens"):
        read_prices(path)
    path.write_text('[models."gpt-x"]\ninput = 0.4\noutput = 1.6\n')
    prices = read_prices(path)
    assert prices["gpt-x"].usd(1_000_000, 1_000_000) == 2.0
    with pytest.raises(UsageError, match="did you mean gpt-x"):
        price_of("gtp-x", prices, path)
    path.write_text("[models.a]\ninput = -1\noutput = 1\n")
    with pytest.raises(UsageError, match="models a input: got -1"):
        read_prices(path)
