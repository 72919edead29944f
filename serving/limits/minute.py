"""A bucket of which no minute takes more than it may.

What is taken comes back a minute later, so no stretch of sixty seconds holds more than the limit,
wherever it begins. A second, small bucket that fills evenly spreads requests over the minute:
servers that hold 600 a minute often count ten a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 61.5
"""A minute, and what two requests may differ in on their way to the server."""

BURST = 0.1
"""The share of a minute's allowance that may be taken at once."""


@dataclass(slots=True)
class Taken:
    """So much was taken at a time, in seconds of the bucket's clock."""

    at: float
    amount: float


class Minute:
    """An allowance of `limit` a minute, of requests or of tokens. `clock` in seconds."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        if limit < 1:
            raise ValueError(f"limit a minute: got {limit}, expected at least 1")
        self.limit = limit
        self._clock = clock
        self._taken: deque[Taken] = deque()
        self._sum = 0.0
        self._capacity = max(limit * BURST, 1.0)
        self._level = self._capacity
        self._filled_at = clock()

    def wait_s(self, amount: float) -> float:
        """Seconds until so much may be taken, 0 for at once. More than the limit waits until
        nothing else is in the minute."""
        now = self._clock()
        self._forget(now)
        self._fill(now)
        amount = min(amount, self.limit)
        lacking = min(amount, self._capacity) - self._level
        wait_s = max(lacking * 60.0 / self.limit, 0.0)
        over = self._sum + amount - self.limit
        for taken in self._taken:
            if over <= 0:
                break
            over -= taken.amount
            wait_s = max(wait_s, taken.at + WINDOW_S - now)
        return wait_s

    def take(self, amount: float) -> Taken:
        """Takes it, whatever there is; ask `wait_s` first."""
        taken = Taken(self._clock(), min(amount, self.limit))
        self._taken.append(taken)
        self._sum += taken.amount
        self._level -= taken.amount
        return taken

    def settle(self, taken: Taken, amount: float) -> None:
        """What was taken turned out to be another amount."""
        change = amount - taken.amount
        if self._taken and taken.at >= self._taken[0].at:
            self._sum += change
        self._level = min(self._level - change, self._capacity)
        taken.amount = amount

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0].at + WINDOW_S <= now:
            self._sum -= self._taken.popleft().amount

    def _fill(self, now: float) -> None:
        gained = (now - self._filled_at) * self.limit / 60.0
        self._level = min(self._level + gained, self._capacity)
        self._filled_at = now
