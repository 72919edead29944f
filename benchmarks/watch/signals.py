"""A TERM signal, as Slurm and Kubernetes send it, stops a sweep the way Ctrl-C does; also where
Ctrl-C itself is ignored, as in a script's background."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from core.rollout import run_async


@contextmanager
def term_as_interrupt() -> Iterator[None]:
    """Raises KeyboardInterrupt at a TERM signal. In another thread than the main one, where no
    signal arrives, it does nothing."""
    if not _in_main_thread():
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        """The handler of TERM."""
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_until_term(work: Coroutine[Any, Any, None]) -> None:
    """`run_async`, ended by a TERM signal through the cancellation of `work`: an exception raised
    in the middle of whatever the loop runs would leave its tasks behind.

    Raises:
        KeyboardInterrupt: stopped by TERM or Ctrl-C.
    """

    async def watched() -> None:
        """The work, as a task that TERM cancels."""
        if not _in_main_thread():
            return await work
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        before = signal.getsignal(signal.SIGTERM)
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await work
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
        return None

    try:
        run_async(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
