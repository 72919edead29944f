"""What a pool asks of its replicas one by one, past Serve, which has no words for it.

Each is a Ray actor with a name; a function is sent to it that reads the server inside
(`__ray_call__`). The functions are made inside functions: they travel as their code, so that
nodes need not have this module. Written against Ray Serve 2.60.0 and vLLM 0.29.0.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

log = logging.getLogger(__name__)

ANSWER_S = 20.0


def cache_tokens(app: str) -> int | None:
    """Tokens that the key-value caches of all replicas hold, prompts and replies together. None
    where one does not tell."""

    def look(replica: Any) -> int | None:
        """Tokens of one replica's cache, as its engine counted them when it started."""
        server = replica._replica_impl._user_callable_wrapper.user_callable
        config = server.engine._engine_client.vllm_config.cache_config
        tokens: int | None = config.kv_cache_size_tokens
        return tokens

    told = _call_each(app, look)
    sizes = [size for size in told.values() if isinstance(size, int) and size > 0]
    return sum(sizes) if sizes and len(sizes) == len(told) else None


def unanswered_s(app: str) -> dict[str, float]:
    """Of each replica, by its actor's name: for how long its engine owes the answer to a
    question that needs no work (whether it sleeps), which it takes between two steps. Serve's own
    health checks do not reach the engine's process, which may stand still without being dead."""

    def look(replica: Any) -> float:
        """Seconds that the last question has gone unanswered; asks the next where it has been."""
        import asyncio
        import time

        wrapper = replica._replica_impl._user_callable_wrapper
        asked, since = getattr(wrapper, "longmem_pulse", (None, 0.0))
        if asked is not None and not asked.done():
            return time.monotonic() - float(since)
        question = asyncio.run_coroutine_threadsafe(
            wrapper.user_callable.is_sleeping(), wrapper.event_loop
        )
        wrapper.longmem_pulse = (question, time.monotonic())
        return 0.0

    return {name: s for name, s in _call_each(app, look).items() if isinstance(s, float)}


def kill(name: str) -> None:
    """Ends a replica with its engine, for good; Serve puts another in its place."""
    import ray
    from ray.exceptions import RayError

    def end(replica: Any) -> None:
        """Ends the processes that the replica started."""
        import psutil

        # A stopped engine would outlive its owner, with the memory that it holds.
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()

    with contextlib.suppress(RayError, ValueError):  # it has just died
        actor = ray.get_actor(name, namespace="serve")
        with contextlib.suppress(RayError):
            ray.get(actor.__ray_call__.remote(end), timeout=ANSWER_S)
        ray.kill(actor)


def _call_each(app: str, function: Callable[[Any], Any]) -> dict[str, Any]:
    """What `function` returns in each replica of an application; None where it did not answer."""
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util import list_named_actors

    prefix = f"SERVE_REPLICA::{app}#LLMServer"
    asked = {}
    for actor in list_named_actors(all_namespaces=True):
        name = actor["name"]
        if name.startswith(prefix):
            with contextlib.suppress(ValueError):  # it has just died
                handle = ray.get_actor(name, namespace=actor["namespace"])
                asked[name] = handle.__ray_call__.remote(function)
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_S)
    told: dict[str, Any] = {}
    for name, answer in asked.items():
        told[name] = None
        try:
            told[name] = ray.get(answer, timeout=0.1)
        except RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            _warn_once(f"replicas cannot be asked; another version of Serve or vLLM? {last}")
        except RayError:  # dead, or too busy
            continue
    return told


@cache
def _warn_once(text: str) -> None:
    log.warning(text)
