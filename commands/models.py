"""`run.py models`: what can be served by name; its weights ahead of a sweep, its commit pinned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commands.flags import (
    DONE,
    add_catalogue,
    add_json,
    completes,
    examples,
    models_there_are,
    print_table,
)
from core.types import Json

if TYPE_CHECKING:
    from serving.catalogue import ModelEntry


def add_models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `models`, `models fetch` and `models pin`."""
    models = commands.add_parser(
        "models",
        help="list the catalogue of models, fetch weights, pin commits",
        description="Without a further word: lists the catalogue of models.",
        epilog=examples(
            "models",
            "models --json",
            "models fetch rl-memagent-7b      # weights ahead, for nodes without network",
            "models pin rl-memagent-7b        # hold it at its present commit",
        ),
    )
    add_json(models)
    add_catalogue(models)
    models.set_defaults(command=list_models)
    kinds = models.add_subparsers(title="what to do", metavar="WHAT")
    add = kinds.add_parser(
        "fetch",
        help="get weights ahead of a sweep",
        description="Gets the weights of models into the hub's cache folder (HF_HOME), for compute "
        "nodes that have no network and share that folder. What is there is not fetched again.",
        epilog=examples("models fetch rl-memagent-7b qwen2.5-7b-instruct"),
    )
    _add_names(add)
    add.set_defaults(command=fetch_models)
    add = kinds.add_parser(
        "pin",
        help="hold models at their present commit",
        description="Asks the hub for the models' present commits and writes them to "
        "serving/revisions.toml: from then on they are served at these.",
        epilog=examples("models pin rl-memagent-7b qwen2.5-7b-instruct"),
    )
    _add_names(add)
    add.set_defaults(command=pin_models)


def _add_names(add: argparse.ArgumentParser) -> None:
    named = add.add_argument("names", nargs="+", metavar="NAME", help="from `run.py models`")
    completes(named, models_there_are)
    # Not to write over what stands before the word.
    add.add_argument("--catalogue", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def list_models(arguments: argparse.Namespace) -> int:
    """run.py models"""
    from serving.catalogue import load_catalogue

    catalogue = load_catalogue(arguments.catalogue)
    rows: list[dict[str, Json]] = [
        {
            "model": name,
            "window": entry.window_tokens,
            "runs on": "CPU or GPU" if entry.cpu else f"{entry.tensor_parallel} GPU(s)",
            "source": entry.source,
            "commit": entry.revision if arguments.json else (entry.revision or "")[:12],
            "note": "demonstration" if entry.demonstration else entry.note,
        }
        for name, entry in catalogue.items()
    ]
    print_table(rows, as_json=arguments.json)
    return DONE


def fetch_models(arguments: argparse.Namespace) -> int:
    """run.py models fetch"""
    from serving.downloads import cached_commit
    from serving.fetch import fetch, fetch_steps

    for entry in _on_hub(arguments):
        fetch(entry, fetch_steps(), "here", lambda line: print(line, file=sys.stderr, flush=True))
        print(f"{entry.name}  {entry.source} at {cached_commit(entry.source, entry.revision)}")
    return DONE


def pin_models(arguments: argparse.Namespace) -> int:
    """run.py models pin"""
    from serving.downloads import REVISIONS_FILE, pin

    for entry in _on_hub(arguments):
        # Its branch anew, also where it is pinned already.
        print(f"{entry.name}  {entry.source} at {pin(entry.source, None)}")
    print(f"pins  {REVISIONS_FILE}")
    return DONE


def _on_hub(arguments: argparse.Namespace) -> Iterator[ModelEntry]:
    """The named models, those left out whose weights are folders here."""
    from serving.catalogue import find_model, load_catalogue

    catalogue = load_catalogue(arguments.catalogue)
    for entry in [find_model(name, catalogue) for name in arguments.names]:
        if entry.is_local:
            print(f"{entry.name}  {entry.location} is a folder here")
        else:
            yield entry
