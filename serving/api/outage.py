"""Servers go away for a while: then all requests wait, one asks, and all go on together.

Whether a failure is the server's or the request's own is found out by a probe, a request of
one token: where the probe is answered, the request is to blame, and its retries are bounded;
where it is not, nobody's are counted, and the wait is bounded by time alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.errors import HarnessError, ServerDied

log = logging.getLogger(__name__)

ALIVE_EVERY_S = 5.0
"""How often a waiting client looks whether its own pool lives."""

TELL_EVERY_S = 60.0


class Trouble(Exception):
    """A failure that may pass. `error` is what to raise if it does not, `after_s` what the
    server's Retry-After asks for; `waits`: the server asked to wait, so no retry is used up."""

    def __init__(
        self, error: HarnessError, after_s: float | None = None, *, waits: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s
        self.waits = waits


Probe = Callable[[], Awaitable[None]]
"""Asks the server for next to nothing. Raises Trouble where it does not answer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds. `backoff_s` doubles from try to try up to `backoff_max_s`,
    with jitter. After `outage_s` without an answer the run ends, owing what it owes.

    `alive` raises the error that tells why the server ended, for a pool of our own: while it
    raises nothing, there is no end to the wait. `sleep` and `clock` are time itself.
    """

    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    outage_s: float = 600.0
    alive: Callable[[], None] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    def pause_s(self, attempt: int, after_s: float | None) -> float:
        """The wait before try `attempt` + 1: never shorter than the backoff, whatever is asked."""
        ceiling = min(self.backoff_s * float(2 ** min(attempt, 30)), self.backoff_max_s)
        own = ceiling * random.uniform(0.5, 1.0)
        if after_s is None or (self.alive is not None and after_s > self.outage_s):
            return own
        return max(own, after_s)


class Outage:
    """Whether a server answers, for all of its client's requests."""

    def __init__(self, where: str, patience: Patience) -> None:
        self.failed_probes = 0
        self._where = where
        self._patience = patience
        self._answers = asyncio.Event()
        self._answers.set()
        self._hold_until = 0.0
        self._probing: asyncio.Task[None] | None = None
        self._ended: HarnessError | None = None

    async def over(self) -> None:
        """Waits while the server is away.

        Raises:
            ServerDied: it ended, or was away for too long.
        """
        if not self._answers.is_set():
            await self._answers.wait()
        if self._ended is not None:
            raise self._ended

    def answered(self) -> None:
        """A request was answered: whoever waits may go on, unless a wait was asked for."""
        if not self._answers.is_set() and self._patience.clock() >= self._hold_until:
            if self._probing is not None:
                self._probing.cancel()
            self._answers.set()

    def failed(self, trouble: Trouble, probe: Probe) -> None:
        """A request met trouble: all wait until `probe`, or a request on its way, is answered.

        Raises:
            ServerDied: the server asks for a longer wait than there is patience.
        """
        try:
            self._check_time(trouble, trouble.after_s or 0.0)
        except ServerDied as error:
            self._end(error)
            raise
        if self._ended is None and (self._probing is None or self._probing.done()):
            self._answers.clear()
            self._probing = asyncio.create_task(self._ask_until_answered(trouble, probe))

    async def close(self) -> None:
        """Stops asking."""
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing

    async def _ask_until_answered(self, trouble: Trouble, probe: Probe) -> None:
        clock = self._patience.clock
        began, told, attempt = clock(), -TELL_EVERY_S, 0
        try:
            while True:
                pause_s = self._patience.pause_s(attempt, trouble.after_s)
                self._check_time(trouble, clock() - began + pause_s)
                self._hold_until = clock() + pause_s if trouble.after_s else 0.0
                await self._sleep(pause_s)
                try:
                    await probe()
                except Trouble as again:
                    trouble = again
                    self.failed_probes += 1
                    attempt += 1
                else:
                    break
                if clock() - told >= TELL_EVERY_S:
                    told = clock()
                    log.warning(
                        "%s For %.0f s now; all requests wait and one asks again.",
                        trouble.error,
                        told - began,
                    )
            if attempt:
                log.warning("%s answers again, after %.0f s", self._where, clock() - began)
        except HarnessError as error:
            self._end(error)
        else:
            self._answers.set()

    def _end(self, error: HarnessError) -> None:
        self._ended = error
        self._answers.set()

    def _check_time(self, trouble: Trouble, waited_s: float) -> None:
        """Raises ServerDied where the next wait would be too long."""
        patience = self._patience
        if patience.alive is not None or waited_s <= patience.outage_s:
            return
        asked_s = trouble.after_s or 0.0
        if asked_s > patience.outage_s:
            raise ServerDied(
                f"{trouble.error} It asks to wait {_until(asked_s)}; the limit is "
                f"{patience.outage_s:g} s (--outage)."
            )
        raise ServerDied(
            f"{trouble.error} This lasted for more than {patience.outage_s:g} s (--outage), "
            "with a probe of one token failing too."
        )

    async def _sleep(self, seconds: float) -> None:
        """Sleeps; raises as soon as our own pool is known to have ended."""
        alive = self._patience.alive
        if alive is None:
            await self._patience.sleep(seconds)
            return
        while True:
            alive()
            await self._patience.sleep(min(seconds, ALIVE_EVERY_S))
            seconds -= ALIVE_EVERY_S
            if seconds <= 0:
                break
        alive()


def _until(seconds: float) -> str:
    try:
        at = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return "for ever"
    return f"until {at:%Y-%m-%d %H:%M:%S} UTC"
