"""Against a scripted server and a virtual clock: no minute is over its limit, and it is used."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right

import pytest

from core.errors import RequestRejected
from serving.limits.gate import Gate, Passage, Rates, Weight, weight_of
from serving.limits.headers import duration_s
from tests.serving.limits.virtual import Virtual
from tests.serving.scripted import CHAT, ScriptedServer, Time, ask, error, reply

Arrivals = list[tuple[float, int]]
MINUTES = 5


def busiest_minute(arrivals: Arrivals) -> int:
    """The most that any sixty seconds hold."""
    times = [at for at, _ in arrivals]
    amounts = [amount for _, amount in arrivals]
    return max(
        sum(amounts[start : bisect_right(times, at + 59.999)]) for start, at in enumerate(times)
    )


async def saturate(
    time: Virtual, gate: Gate, rng: random.Random, *, jitter_s: float = 1.0
) -> Arrivals:
    """64 workers with more to ask than they may, for some minutes; replies are shorter than
    promised. What arrives at the server when, with its tokens."""
    arrivals: Arrivals = []

    async def worker() -> None:
        while time.now < 60 * MINUTES:
            prompt, spoken = rng.randint(200, 800), rng.randint(20, 200)
            async with Passage(gate, Weight(prompt, 4 * prompt, 200)) as passage:
                await time.sleep(rng.uniform(0, jitter_s))
                arrivals.append((time.now, prompt + spoken))
                await time.sleep(rng.uniform(0.2, 2.0))
                passage.used(prompt, spoken)

    async def all_workers() -> None:
        await asyncio.gather(*(worker() for _ in range(64)))

    await time.run(all_workers())
    return sorted(arrivals)


@pytest.mark.parametrize("limit", [60, 600])
async def test_no_minute_has_more_requests_than_allowed_and_nearly_all_are_used(
    limit: int,
) -> None:
    time = Virtual()
    gate = Gate(Rates(requests_per_minute=limit, clock=time.clock, sleep=time.sleep))
    arrivals = [(at, 1) for at, _ in await saturate(time, gate, random.Random(1))]
    within = [at for at, _ in arrivals if at <= 60 * MINUTES]
    assert busiest_minute(arrivals) <= limit
    assert len(within) >= 0.95 * limit * MINUTES


async def test_no_minute_has_more_tokens_than_allowed_and_nearly_all_are_used() -> None:
    limit, time = 60_000, Virtual()
    gate = Gate(Rates(tokens_per_minute=limit, clock=time.clock, sleep=time.sleep))
    arrivals = await saturate(time, gate, random.Random(2))
    within = sum(tokens for at, tokens in arrivals if at <= 60 * MINUTES)
    assert busiest_minute(arrivals) <= limit
    assert within >= 0.95 * limit * MINUTES


async def test_a_minute_is_not_spent_in_its_first_seconds() -> None:
    time = Virtual()
    gate = Gate(Rates(requests_per_minute=600, clock=time.clock, sleep=time.sleep))
    arrivals = await saturate(time, gate, random.Random(3))
    assert sum(at < 6 for at, _ in arrivals) <= 0.25 * 600


async def test_the_servers_own_word_is_obeyed_without_flags() -> None:
    """A server with a bucket of its own, told in its headers, never has to refuse."""
    time = Virtual()
    gate = Gate(Rates(clock=time.clock, sleep=time.sleep))
    left, at, refused, served = 30.0, 0.0, 0, 0

    async def worker() -> None:
        nonlocal left, at, refused, served
        while time.now < 300:
            async with Passage(gate, Weight(10, 40, 10)) as passage:
                left, at = min(left + (time.now - at) * 0.5, 30.0), time.now
                refused += left < 1
                left -= 1
                served += 1
                headers = {
                    "x-ratelimit-limit-requests": "30",
                    "x-ratelimit-remaining-requests": str(max(int(left), 0)),
                    "x-ratelimit-reset-requests": f"{(30 - left) / 0.5:.3f}s",
                }
                await time.sleep(0.1)
                passage.came(headers, refused=False)

    async def all_workers() -> None:
        await asyncio.gather(*(worker() for _ in range(8)))

    await time.run(all_workers())
    assert refused == 0
    assert served >= 0.85 * (30 + 300 * 0.5)


async def test_a_client_waits_before_it_asks_more_than_it_may() -> None:
    time = Time()
    server = ScriptedServer(reply(CHAT))
    rates = Rates(requests_per_minute=2, clock=time.clock, sleep=time.sleep)
    async with server.running():
        client = server.client(patience=time.patience())
        client._gate = Gate(rates)
        async with client:
            for _ in range(5):
                await ask(client)
    assert time.now >= 2 * 60
    assert len(server.asked) == 5


async def test_retry_after_holds_everybody_back() -> None:
    time = Time()
    server = ScriptedServer(error(429, "slow down", Retry_After="40"), reply(CHAT))
    async with server.running(), server.client(patience=time.patience()) as client:
        await asyncio.gather(*(ask(client) for _ in range(6)))
    assert time.now >= 40


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3s", 3723.0), ("7.5", 7.5)],
)
def test_durations_as_servers_write_them(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 s", "-1", "1s?"])
def test_other_texts_are_no_durations(text: str) -> None:
    assert duration_s(text) is None


def test_a_prompt_weighs_at_most_its_bytes() -> None:
    weight = weight_of(7000, None, 100)
    assert weight.prompt == 2000
    assert weight.most_prompt >= 7000
    assert weight_of(7000, 123, 100) == Weight(123, 123, 100)


# -- reasoning models ------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_are_kept_apart_from_the_reply(field: str) -> None:
    message = {"content": "Paris", field: "It may be London. No."}
    server = ScriptedServer(reply({"choices": [{"message": message, "finish_reason": "stop"}]}))
    turn = await server.turn()
    assert (turn.reply, turn.reasoning) == ("Paris", "It may be London. No.")


async def test_a_thought_that_used_the_budget_up_leaves_an_empty_reply() -> None:
    message = {"content": None, "reasoning_content": "Let me see"}
    server = ScriptedServer(reply({"choices": [{"message": message, "finish_reason": "length"}]}))
    turn = await server.turn()
    assert (turn.reply, turn.reasoning, turn.finish_reason) == ("", "Let me see", "length")


async def test_openais_reasoning_models_are_asked_in_their_own_way() -> None:
    server = ScriptedServer(reply(CHAT))
    await server.turn(openai_reasoning=True)
    assert server.body["max_completion_tokens"] == 7
    assert not {"max_tokens", "temperature", "top_p", "top_k"} & set(server.body)


async def test_their_refusal_points_to_the_flag() -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with pytest.raises(RequestRejected, match="--openai-reasoning"):
        await ScriptedServer(error(400, said)).turn()
