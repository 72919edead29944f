"""Caches that several threads share: a sweep makes samples in worker threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from threading import RLock
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def once(maxsize: int) -> Callable[[Function], Function]:
    """`functools.lru_cache` that makes each value once: threads that ask meanwhile wait for it.

    A function may call others that are made so, and itself, as long as none calls back.
    """

    def decorate(function: Function) -> Function:
        lock = RLock()
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def locked(*args: Any) -> Any:
            with lock:
                return cached(*args)

        locked.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return cast("Function", locked)

    return decorate
