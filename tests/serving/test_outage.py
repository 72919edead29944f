"""While a server is away all wait, one asks, and nothing is taken for a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from core.errors import RequestFailed, RequestTimeout, ServerDied
from core.types import GREEDY, Message, Turn
from tests.serving.scripted import CHAT, Answer, Asked, ScriptedServer, Time, ask, error, reply


def away_until(time: Time, end: float, failure: Answer) -> Callable[[Asked], Answer]:
    return lambda asked: failure if time.now < end else reply(CHAT)


async def many(
    server: ScriptedServer, time: Time, count: int = 20, **patience: float
) -> list[Turn]:
    """So many turns by one client, half of them begun after the first have failed."""
    async with server.running(), server.client(patience=time.patience(**patience)) as client:

        async def worker() -> list[Turn]:
            return [await ask(client), await ask(client)]

        pairs = await asyncio.gather(*(worker() for _ in range(count // 2)))
    return [turn for pair in pairs for turn in pair]


@pytest.mark.parametrize(
    "failure",
    [
        error(500, "engine dead"),
        error(502, "no upstream"),
        error(429, "slow down"),
        error(429, "slow down", retry_after="20"),
        Answer(drop=True),
        Answer(b"{", cut=9),
    ],
)
async def test_all_wait_and_one_asks_until_the_server_is_back(failure: Answer) -> None:
    time = Time()
    answer = away_until(time, 45.0, failure)
    server = ScriptedServer(answer, probe=answer)
    turns = await many(server, time)

    assert [turn.reply for turn in turns] == ["Here."] * 20
    assert 45 <= time.now < 120
    # Each of the 10 workers met the outage once, and was let through once for each turn.
    assert len(server.asked) <= 10 + 20
    assert 2 <= len(server.probes) <= 12


async def test_an_outage_does_not_use_up_retries() -> None:
    time = Time()
    answer = away_until(time, 500.0, error(500, "engine dead"))
    server = ScriptedServer(answer, probe=answer)
    async with server.running(), server.client(patience=time.patience(), retries=0) as client:
        assert (await ask(client)).reply == "Here."


async def test_a_dead_replica_beside_a_living_one_uses_up_no_retries() -> None:
    time = Time()
    dead = error(500, "EngineCore encountered an issue. See stack trace (above).")
    # The living one answers every probe; the dead one is given this request until it is replaced.
    server = ScriptedServer(away_until(time, 120.0, dead), probe=reply(CHAT))
    async with server.running(), server.client(patience=time.patience(), retries=2) as client:
        assert (await ask(client)).reply == "Here."
    assert len(server.asked) > 3
    assert time.now < 200


async def test_a_server_that_is_gone_for_a_minute_is_waited_for() -> None:
    time = Time()
    server = ScriptedServer(reply(CHAT))
    async with server.running():
        client = server.client(patience=time.patience())
        await client.__aenter__()
        await ask(client)
    waiting = asyncio.create_task(ask(client))
    await time.reaches(60)
    async with server.running():
        assert (await waiting).reply == "Here."
    await client.__aexit__(None, None, None)


async def test_a_request_on_its_way_that_is_answered_ends_the_wait() -> None:
    time = Time()
    released = asyncio.Event()

    async def late(asked: Asked) -> Answer:
        await released.wait()
        return reply(CHAT)

    # The probe never gets an answer: only the first request shows that the server is there.
    server = ScriptedServer(late, error(500, "boom"), reply(CHAT), probe=Answer(hang=True))
    async with server.running(), server.client(patience=time.patience()) as client:
        first = asyncio.create_task(ask(client))
        await server.was_asked.wait()
        second = asyncio.create_task(ask(client))
        await server.was_probed.wait()
        released.set()
        turns = await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert [turn.reply for turn in turns] == ["Here."] * 2


async def test_an_endpoint_that_stays_away_ends_the_run_for_all() -> None:
    time = Time()
    server = ScriptedServer(error(503, "maintenance"), probe=error(503, "maintenance"))
    async with server.running(), server.client(patience=time.patience(outage_s=300.0)) as client:
        ended = await asyncio.gather(*(ask(client) for _ in range(8)), return_exceptions=True)
    assert {type(error) for error in ended} == {ServerDied}
    assert "answered 503: maintenance" in str(ended[0])
    assert "more than 300 s (--outage)" in str(ended[0])
    assert 200 < time.now <= 300
    assert len(server.asked) == 8


@pytest.mark.parametrize(
    ("after", "until"), [("7200", r"until 20\d\d-.* UTC"), ("inf", "for ever")]
)
async def test_a_wait_beyond_all_patience_ends_the_run_at_once(after: str, until: str) -> None:
    time = Time()
    server = ScriptedServer(error(429, "quota", retry_after=after))
    with pytest.raises(ServerDied, match=f"answered 429: quota.* asks to wait {until}"):
        await server.turn(patience=time.patience())
    assert time.now == 0
    assert len(server.asked) == 1


async def test_a_request_that_always_fails_does_not_stop_the_others() -> None:
    time = Time()

    def answer(asked: Asked) -> Answer:
        poison = asked.body["messages"][0]["content"] == "poison"
        return error(500, "assertion failed") if poison else reply(CHAT)

    server = ScriptedServer(answer, probe=reply(CHAT))
    async with server.running(), server.client(patience=time.patience()) as client:
        poison = client.turn(
            "pocket", [Message("user", "poison")], max_tokens=7, sampling=GREEDY, tag="memory"
        )
        ended = await asyncio.gather(
            poison, *(ask(client) for _ in range(9)), return_exceptions=True
        )
    assert isinstance(ended[0], RequestFailed)
    assert "answered 500: assertion failed (4 tries)" in str(ended[0])
    assert all(isinstance(turn, Turn) for turn in ended[1:])


async def test_a_server_that_falls_silent_fails_what_is_on_its_way_and_holds_the_rest() -> None:
    time = Time()

    def answer(asked: Asked) -> Answer:
        return Answer(hang=True) if time.now < 100 else reply(CHAT)

    server = ScriptedServer(answer, probe=answer)
    async with (
        server.running(),
        server.client(patience=time.patience(), reply_timeout_s=0.5) as client,
    ):
        early = [asyncio.create_task(ask(client)) for _ in range(3)]
        with pytest.raises(RequestTimeout):
            await early[0]
        late = await asyncio.gather(*(ask(client) for _ in range(5)))
        await asyncio.gather(*early, return_exceptions=True)
    assert [turn.reply for turn in late] == ["Here."] * 5
    assert time.now >= 100


# -- a pool of our own -------------------------------------------------------------------------


async def test_a_pool_is_waited_for_as_long_as_it_lives(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    looked: list[float] = []
    answer = away_until(time, 2000.0, error(500, "both engines are dead"))
    server = ScriptedServer(answer, probe=answer)
    patience = time.patience(alive=lambda: looked.append(time.now), outage_s=60.0)
    with caplog.at_level(logging.WARNING):
        turn = await server.turn(patience=patience)
    assert turn.reply == "Here."
    assert max(b - a for a, b in pairwise(looked)) < 5.01
    assert "both engines are dead For" in caplog.text
    assert "answers again, after 20" in caplog.text


async def test_a_pool_that_died_tells_its_own_story() -> None:
    time = Time()
    server = ScriptedServer(reply(CHAT))
    async with server.running():
        pass

    def alive() -> None:
        if time.now > 30:
            raise ServerDied("the pool of m ended. Log: logs/pool.log")

    patience = time.patience(alive=alive)
    async with server.client(patience=patience) as client:
        ended = await asyncio.gather(*(ask(client) for _ in range(4)), return_exceptions=True)
    assert {str(error) for error in ended} == {"the pool of m ended. Log: logs/pool.log"}
    assert time.now < 40


async def test_nobody_asks_about_a_url_that_the_user_never_gave(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    server = ScriptedServer(reply(CHAT))
    async with server.running():
        pass

    def alive() -> None:
        if time.now > 100:
            raise ServerDied("ended")

    async with server.client(patience=time.patience(alive=alive)) as client:
        with caplog.at_level(logging.WARNING), pytest.raises(ServerDied, match=r"^ended$"):
            await ask(client)
    assert f"the pool at {server.url} does not answer" in caplog.text
    assert "URL right" not in caplog.text
