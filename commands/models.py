"""`run.py models`: what can be served by name; its weights ahead of a sweep, its commit pinned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commands.flags import DONE, add_catalogue

if TYPE_CHECKING:
    from serving.catalogue import ModelEntry


def add_models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `models`, `models fetch` and `models pin`."""
    models = commands.add_parser(
        "models",
        help="list the catalogue of models, fetch weights, pin commits",
        description="Lists the catalogue of models.",
    )
    add_catalogue(models)
    models.set_defaults(command=list_models)
    kinds = models.add_subparsers(title="what to do", metavar="WHAT")
    add = kinds.add_parser(
        "fetch",
        help="get weights ahead of a sweep",
        description="Gets the weights of models into the hub's cache folder (HF_HOME), for compute "
        "nodes that have no network and share that folder. What is there is not fetched again.",
    )
    _add_names(add)
    add.set_defaults(command=fetch_models)
    add = kinds.add_parser(
        "pin",
        help="hold models at their present commit",
        description="Asks the hub for the models' present commits and writes them to "
        "serving/revisions.toml: from then on they are served at these.",
    )
    _add_names(add)
    add.set_defaults(command=pin_models)


def _add_names(add: argparse.ArgumentParser) -> None:
    add.add_argument("names", nargs="+", metavar="NAME", help="from `run.py models`")
    # Not to write over what stands before the word.
    add.add_argument("--catalogue", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def list_models(arguments: argparse.Namespace) -> int:
    """run.py models"""
    from serving.catalogue import load_catalogue

    catalogue = load_catalogue(arguments.catalogue)
    width = max(map(len, catalogue))
    for name, entry in catalogue.items():
        pinned = f" at {entry.revision[:12]}" if entry.revision else ""
        print(f"{name:{width}}  window {entry.window_tokens:>9,}  {entry.source}{pinned}")
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
