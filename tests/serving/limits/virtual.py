"""Time that passes as soon as nobody has anything else to do."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable
from itertools import count


class Virtual:
    """A clock of seconds, and sleep by it. `run` works a coroutine off."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._number), done))
        await done

    async def run(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        while True:
            for _ in range(12):
                await asyncio.sleep(0)
            if task.done():
                return task.result()  # type: ignore[return-value]
            self.now, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)
