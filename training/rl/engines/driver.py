"""Requests as they come, to an engine that computes step by step in this process.

    ask(request) -> inbox -> advance(new): adds them, computes a step -> what ended -> its caller

One thread calls `advance`, again as long as anything runs; the event loop stays free meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import TracebackType

from core.errors import ServerDied
from training.rl.engines.engine import Ask, Generated, Request

Advance = Callable[[Sequence[tuple[str, Request]]], Sequence[tuple[str, Generated]]]
"""Takes new requests by name, computes one step of all; the names and replies that ended."""

_NUMBERS = count()
"""Of requests, apart for the life of the process: an engine may still know an old name."""


class Driver:
    """A context manager that gives the way to ask. On the way out what still runs is aborted."""

    def __init__(self, advance: Advance, abort: Callable[[Sequence[str]], None]) -> None:
        self._advance, self._abort = advance, abort
        self._inbox: list[tuple[str, Request]] = []
        self._running: dict[str, asyncio.Future[Generated]] = {}
        self._changed = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Ask:
        self._driving = asyncio.create_task(self._drive())
        return self._ask

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        self._changed.set()
        await self._driving

    async def _ask(self, request: Request) -> Generated:
        name = f"rollout-{next(_NUMBERS)}"
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        self._inbox.append((name, request))
        self._running[name] = future
        self._changed.set()
        return await future

    async def _drive(self) -> None:
        loop = asyncio.get_running_loop()
        # One worker of our own: the engine's compute threads belong to the thread that calls.
        with ThreadPoolExecutor(1) as worker:
            while not self._closed:
                if not self._running:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                new, self._inbox = self._inbox, []
                try:
                    ended = await loop.run_in_executor(worker, self._advance, new)
                except Exception as error:  # noqa: BLE001 - whatever it is, the engine is gone
                    self._fail(ServerDied(f"the rollout engine failed: {error!r}"))
                    return
                for name, reply in ended:
                    future = self._running.pop(name)
                    if not future.done():  # its rollout may have been stopped
                        future.set_result(reply)
            known = self._running.keys() - {name for name, _ in self._inbox}
            if known:
                await loop.run_in_executor(worker, self._abort, sorted(known))

    def _fail(self, error: ServerDied) -> None:
        for future in self._running.values():
            if not future.done():
                future.set_exception(error)
