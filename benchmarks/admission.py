"""How much may be at the server at once: counted in tokens as well as in requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Admission:
    """Lets requests in, first come first served, while their tokens fit.

    Requests alone are the wrong measure: 256 requests of 6,000 tokens fill a server's cache
    that 13 of 120,000 fill as well, and what does not fit waits in the server's queue until
    its client gives up. A request larger than the whole capacity is let in alone.
    """

    def __init__(self, tokens: int) -> None:
        if tokens < 1:
            raise ValueError(f"token capacity: got {tokens}, expected at least 1")
        self.capacity = tokens
        self.in_flight = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def admit(self, tokens: int) -> AsyncIterator[None]:
        """Waits for room for `tokens` (prompt and reply budget), and holds it inside."""
        weight = min(tokens, self.capacity)
        if self._waiting or self.in_flight + weight > self.capacity:
            await self._turn(weight)
        else:
            self.in_flight += weight
        try:
            yield
        finally:
            self._give_back(weight)

    async def _turn(self, weight: int) -> None:
        """Queues up; whoever gives room back hands it on, and counts it."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._give_back(weight)
            else:
                self._hand_on()  # the ones behind may fit where this one did not
            raise

    def _give_back(self, weight: int) -> None:
        self.in_flight -= weight
        self._hand_on()

    def _hand_on(self) -> None:
        # In the order of arrival: a large request is not starved by small ones.
        while self._waiting:
            weight, admitted = self._waiting[0]
            if admitted.cancelled():
                self._waiting.popleft()
            elif self.in_flight + weight <= self.capacity:
                self._waiting.popleft()
                self.in_flight += weight
                admitted.set_result(None)
            else:
                break
