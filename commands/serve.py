"""`run.py serve`: a pool without a sweep."""

from __future__ import annotations

import argparse

from commands.flags import DONE, add_catalogue, add_pool, at_least, engine_of


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `serve`."""
    add = commands.add_parser(
        "serve",
        help="serve a model until Ctrl-C",
        description="Starts a pool of replicas of "
        "one model and prints its OpenAI-compatible address, on the loopback interface.",
    )
    add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
    add.add_argument("--port", type=at_least(1), default=8000, help="default: %(default)s")
    add_pool(add)
    add_catalogue(add)
    add.set_defaults(command=serve)


def serve(arguments: argparse.Namespace) -> int:
    """run.py serve"""
    from serving.catalogue import find_model, load_catalogue
    from serving.placement import with_engine
    from serving.pool import serve_forever

    entry = find_model(arguments.model, load_catalogue(arguments.catalogue))
    serve_forever(
        with_engine(entry, engine_of(arguments)),
        port=arguments.port,
        ray_address=arguments.ray_address,
        deadline_s=arguments.deadline,
    )
    return DONE
