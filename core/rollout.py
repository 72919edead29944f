"""The rollout: one sample through one method, as a trajectory. Sweeps and the trainer share it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from core.errors import HarnessError
from core.types import (
    Answer,
    Chat,
    Failure,
    Message,
    Method,
    Problem,
    Sample,
    TokenSpan,
    Trajectory,
    Turn,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")


async def rollout(
    sample: Sample, method: Method, chat: Chat, *, keep_messages: bool = False
) -> Trajectory:
    """Runs `method` on `sample` and returns all that happened.

    A failure is part of the trajectory, not an exception: it scores 0 and is counted.
    `keep_messages` holds on to every prompt, which is the whole haystack; sweeps leave it
    off, since prompts can be made again from the sample.

    Raises:
        HarnessError: a fatal one only (the server is gone, the store cannot be written).
    """
    turns: list[Turn] = []

    async def recorded(messages: Sequence[Message], **rest: Any) -> Turn:
        turn = await chat(messages, **rest)
        turns.append(turn if keep_messages else replace(turn, messages=()))
        return turn

    answer: Answer | None = None
    failure: Failure | None = None
    start = time.monotonic()
    try:
        answer = await method.answer(sample.problem, recorded)
    except HarnessError as error:
        if error.fatal:
            raise
        failure = failed(error, "crash")
    except Exception as error:  # a defect in a method must cost one sample, not the run
        log.exception("%s: %s crashed", sample.id, type(method).__name__)
        failure = failed(error, "crash")
    return Trajectory(sample.id, tuple(turns), answer, failure, time.monotonic() - start)


def failed(error: Exception, crash: str) -> Failure:
    """The failure that an error is counted as: by its own kind, or as a `crash` where it is none
    of core/errors.py."""
    if isinstance(error, HarnessError):
        return Failure(error.kind, str(error))
    return Failure(crash, f"{type(error).__name__}: {error}")


def told(turn: Turn, reads: Sequence[TokenSpan], memory: Callable[[str], str] | None) -> Turn:
    """The turn with what the method told of it; every `Chat` returns its turns so."""
    return replace(turn, reads=tuple(reads), memory=memory(turn.reply) if memory else None)


THREADS = max(1, len(os.sched_getaffinity(0)) - 1)
"""For what computes: the event loop keeps a core. With more threads than cores, one that holds the
interpreter's lock would be put to sleep for another, and the loop would wait for both."""


async def off_loop(work: Callable[P, T], *arguments: P.args, **rest: P.kwargs) -> T:
    """Runs what computes for milliseconds or more (tokenizing, making a sample) in one of THREADS
    threads: the event loop must go on feeding the server."""
    call = partial(work, *arguments, **rest)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "computing")


async def in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Iterates a slow iterator by `off_loop`, such as the chunks of millions of tokens."""
    done = object()
    while (item := await off_loop(next, items, done)) is not done:
        yield item  # type: ignore[misc]


async def read_in_thread(read: Callable[[Problem], T], problem: Problem) -> T:
    """`read(problem)` by `off_loop`, for a method that reads its context whole before it
    asks. Cancelled, as by Ctrl-C, the thread ends at the next piece of the context: it cannot be
    cancelled itself, and the program does not end before it."""
    cancelled = threading.Event()
    context = replace(problem.context, pieces=_Pieces(problem.context.pieces, cancelled))
    try:
        return await off_loop(read, replace(problem, context=context))
    except asyncio.CancelledError:
        cancelled.set()
        raise


class _Pieces(Sequence[str]):
    """Pieces that are given out until an event is set; then they raise CancelledError."""

    def __init__(self, pieces: Sequence[str], cancelled: threading.Event) -> None:
        self._pieces, self._cancelled = pieces, cancelled

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._pieces[place]

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if self._cancelled.is_set():
                raise asyncio.CancelledError
            yield piece


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, also where an event loop is running already, as in a notebook: there the
    work has a loop in a thread of its own, and the caller waits for it. Ctrl-C cancels the work,
    and is raised when it has ended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    task: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def told() -> T:
        task.set_result((asyncio.get_running_loop(), asyncio.current_task()))  # type: ignore[arg-type]
        return await work

    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(asyncio.run, told())
        try:
            return result.result()
        except KeyboardInterrupt:
            loop, running = task.result()
            with suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(running.cancel)
            wait([result])
            raise
