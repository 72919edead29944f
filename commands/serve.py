"""`run.py serve`: a pool without a sweep."""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from commands.flags import (
    DONE,
    add_catalogue,
    add_pool,
    at_least,
    completes,
    engine_of,
    examples,
    models_there_are,
)

if TYPE_CHECKING:
    from serving.catalogue import ModelEntry
    from serving.pool import Pool


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `serve`."""
    add = commands.add_parser(
        "serve",
        help="serve a model until Ctrl-C",
        description="Starts a pool of replicas of "
        "one model and prints its OpenAI-compatible address, on the loopback interface.",
        epilog=examples(
            "serve pocket-memagent --port 8000",
            "serve rl-memagent-14b --tensor-parallel 4 --engine max_num_seqs=128",
        ),
    )
    model = add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
    completes(model, models_there_are)
    add.add_argument("--port", type=at_least(1), default=8000, help="default: %(default)s")
    add_pool(add)
    add_catalogue(add)
    add.set_defaults(command=serve)


def serve(arguments: argparse.Namespace) -> int:
    """run.py serve"""
    from serving.catalogue import find_model, load_catalogue
    from serving.placement import with_engine
    from serving.pool import SERVE_LOGS

    entry = find_model(arguments.model, load_catalogue(arguments.catalogue))
    serve_forever(
        with_engine(entry, engine_of(arguments)),
        port=arguments.port,
        ray_address=arguments.ray_address,
        deadline_s=arguments.deadline,
        log_dir=SERVE_LOGS,
    )
    return DONE


def serve_forever(
    entry: ModelEntry,
    *,
    port: int | None = None,
    ray_address: str | None = None,
    deadline_s: float,
    log_dir: Path,
) -> None:
    """Serves until Ctrl-C or SIGTERM, then stops cleanly.

    Raises:
        ServerDied: the pool did not start, or ended by itself.
    """
    from serving.pool import Pool

    previous = signal.signal(signal.SIGTERM, _interrupt)
    pool = Pool(entry, log_dir=log_dir, port=port, ray_address=ray_address, deadline_s=deadline_s)
    try:
        with pool:
            print(_how_to_ask(pool), flush=True)
            while True:
                pool.check()
                time.sleep(1.0)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _how_to_ask(pool: Pool) -> str:
    body = json.dumps(
        {
            "model": pool.entry.name,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 32,
        }
    )
    return (
        f"{pool.base_url}\n\n"
        f"  curl {pool.base_url}/chat/completions -H 'Content-Type: application/json' \\\n"
        f"    -d '{body}'\n\n"
        f"Answers on loopback only. Log: {pool.log_file}. Ctrl-C stops it."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
