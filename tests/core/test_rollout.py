"""Reading a context in a thread: it gives what was read, and ends when nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from core.context import Context
from core.rollout import read_in_thread
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
    # As asyncio.run does at its end, and the program with it.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert time.monotonic() - began < LONGEST_S / 3
    given = pieces.given
    await asyncio.sleep(0.05)
    assert pieces.given == given
