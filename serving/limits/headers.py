"""What servers say of their limits in the headers of a reply.

OpenAI, Azure and vLLM's gateways: `x-ratelimit-limit-requests`, `-remaining-requests`,
`-reset-requests` (`1s`, `6m0s`, `20ms`: until the limit is whole again), and the same of tokens.
Retry-After: RFC 9110, 10.2.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date. None where it asks for
    nothing that can be waited for."""
    value = headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        now = datetime.now(UTC)
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds()
    return None if math.isnan(seconds) or seconds <= 0 else seconds


class Left:
    """What is left of an allowance (`requests` or `tokens`) by the server's own word. It grows
    back evenly until the time that the server names."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._names = [f"x-ratelimit-{part}-{what}" for part in ("limit", "remaining", "reset")]
        self._clock = clock
        self._left: float | None = None
        self._limit = self._per_s = self._at = 0.0
        self._sent = self._heard_of = 0.0

    def take(self, amount: float) -> float:
        """A request takes so much. Returns a mark, to be given with the headers of its reply."""
        self._sent += amount
        if self._left is not None:
            self._left -= amount
        return self._sent

    def read(self, headers: Mapping[str, str], mark: float) -> None:
        """Takes in the headers of a reply; those of other servers say nothing. What was sent after
        the request at the mark the server may not have counted yet."""
        limit, remaining, reset = (headers.get(name, "") for name in self._names)
        reset_s = duration_s(reset)
        numbers = limit.isdecimal() and remaining.isdecimal()
        if reset_s is None or not numbers or mark < self._heard_of:
            return
        self._heard_of, self._at = mark, self._clock()
        self._limit, self._left = float(limit), float(remaining) - (self._sent - mark)
        self._per_s = max(self._limit - float(remaining), 1.0) / max(reset_s, 0.001)

    def wait_s(self, amount: float) -> float:
        """Seconds until so much is left; 0 where the server says nothing."""
        if self._left is None:
            return 0.0
        grown = self._left + (self._clock() - self._at) * self._per_s
        lacking = min(amount, self._limit) - min(grown, self._limit)
        return max(lacking / self._per_s, 0.0)


def duration_s(text: str) -> float | None:
    """`6m0s` -> 360.0; a bare number is seconds; None where it is neither."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
