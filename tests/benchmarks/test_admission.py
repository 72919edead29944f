"""Admission counts tokens, keeps the order, and lets an oversized request in alone."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.admission import Admission


async def test_requests_wait_until_their_tokens_fit_and_in_order() -> None:
    admission = Admission(100)
    entered: list[str] = []
    gates = {name: asyncio.Event() for name in "abcd"}

    async def request(name: str, tokens: int) -> None:
        async with admission.admit(tokens):
            entered.append(name)
            await gates[name].wait()

    tasks = [
        asyncio.create_task(request(n, t)) for n, t in zip("abcd", (60, 50, 30, 500), strict=True)
    ]
    await asyncio.sleep(0.01)
    # c would fit beside a, but b came first.
    assert (entered, admission.in_flight) == (["a"], 60)
    gates["a"].set()
    await asyncio.sleep(0.01)
    assert (entered, admission.in_flight) == (["a", "b", "c"], 80)
    gates["b"].set()
    await asyncio.sleep(0.01)
    assert "d" not in entered
    gates["c"].set()
    await asyncio.sleep(0.01)
    assert (entered[-1], admission.in_flight) == ("d", 100)
    gates["d"].set()
    await asyncio.gather(*tasks)
    assert admission.in_flight == 0


async def test_a_cancelled_request_gives_its_room_back() -> None:
    admission = Admission(10)

    async def hold() -> None:
        async with admission.admit(10):
            await asyncio.sleep(60)

    task = asyncio.create_task(hold())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(1), admission.admit(10):
        assert admission.in_flight == 10


async def test_cancelling_who_waits_lets_the_next_in() -> None:
    admission = Admission(10)

    async def hold(tokens: int) -> None:
        async with admission.admit(tokens):
            await asyncio.sleep(60)

    first, large, small = (asyncio.create_task(hold(tokens)) for tokens in (4, 9, 5))
    await asyncio.sleep(0.01)
    assert admission.in_flight == 4
    large.cancel()
    await asyncio.sleep(0.01)
    assert admission.in_flight == 9
    # Cancelled in the moment in which it is let in: the room is not lost.
    late = asyncio.create_task(hold(6))
    await asyncio.sleep(0.01)
    small.cancel()
    first.cancel()
    await asyncio.gather(first, large, small, return_exceptions=True)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert admission.in_flight == 0


def test_no_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Admission(0)
