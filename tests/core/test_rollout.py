"""What computes does so beside the event loop; a reading that nobody waits for ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from core.context import Context
from core.rollout import THREADS, in_thread, off_loop, read_in_thread
from core.tokens import Tokenizer
from core.types import Problem

LONGEST_S = 30.0


class Slow(Sequence[str]):
    """Pieces that come slowly, for longer than anyone waits."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.given = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return "word "

    def __iter__(self) -> Iterator[str]:
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            self.given += 1
            self.begun.set()
            yield "word "
            time.sleep(0.001)


def characters(problem: Problem) -> int:
    return sum(map(len, problem.context.blocks()))


async def test_what_was_read_is_returned(
    tokenizer: Tokenizer,
) -> None:
    context = Context(["one", "two", "three"])
    read = await read_in_thread(
        lambda problem: list(problem.context.tokens(tokenizer)), Problem(context, "")
    )
    assert read == list(context.tokens(tokenizer))
    assert await read_in_thread(characters, Problem(context, "")) == context.characters()


async def test_a_cancelled_reading_ends_at_the_next_piece() -> None:
    pieces = Slow()
    reading = asyncio.create_task(read_in_thread(characters, Problem(Context(pieces), "")))
    await asyncio.to_thread(pieces.begun.wait)
    began = time.monotonic()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    for _ in range(THREADS):  # the thread is free again
        await off_loop(int)
    assert time.monotonic() - began < LONGEST_S / 3
    await asyncio.sleep(0.05)
    given = pieces.given
    await asyncio.sleep(0.05)
    assert pieces.given == given


async def test_what_computes_runs_in_few_threads_and_none_is_the_loops() -> None:
    inside: set[int] = set()
    most = 0

    def work(number: int) -> int:
        nonlocal most
        inside.add(threading.get_ident())
        time.sleep(0.01)
        most = max(most, len(inside))
        inside.discard(threading.get_ident())
        return number

    jobs = range(4 * THREADS)
    assert await asyncio.gather(*(off_loop(work, number) for number in jobs)) == [*jobs]
    assert 1 <= most <= THREADS
    assert await off_loop(threading.get_ident) != threading.get_ident()


async def test_an_iterator_that_fails_in_a_thread_fails_outside_of_it() -> None:
    assert [item async for item in in_thread(iter([1, None, 3]))] == [1, None, 3]
    with pytest.raises(ValueError, match="'x'"):
        _ = [item async for item in in_thread(map(int, ["1", "x"]))]
