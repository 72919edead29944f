"""How much may be at the server at once: counted in tokens as well as in requests."""

from __future__ import annotations

import asyncio
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
        self._turnstile = asyncio.Lock()
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def admit(self, tokens: int) -> AsyncIterator[None]:
        """Waits for room for `tokens` (prompt and reply budget), and holds it inside."""
        weight = min(tokens, self.capacity)
        # The lock keeps the order of arrival: a large request is not starved by small ones.
        async with self._turnstile, self._freed:
            await self._freed.wait_for(lambda: self.in_flight + weight <= self.capacity)
            self.in_flight += weight
        try:
            yield
        finally:
            self.in_flight -= weight
            async with self._freed:
                self._freed.notify_all()
