"""What several commands share: types of flags, flags, exit codes."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DONE, INCOMPLETE, WRONG_USE = 0, 1, 2
"""Exit codes: all is well; some failed or are owed, and the same command goes on; wrong use."""

POCKET = Path(__file__).resolve().parent.parent / "checkpoints" / "pocket-base"


def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number of at least `least`."""

    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return value

    return whole_number


def names(text: str) -> tuple[str, ...]:
    """`a,b`. A name's own settings may hold commas: `gru_mem@exit_gate=false,chunk_tokens=512`."""
    parts = re.split(r",(?![^@,]*=)", text)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not found:
        raise argparse.ArgumentTypeError("expected names with commas between")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """`8192,16384`: whole numbers of at least 1."""
    return tuple(at_least(1)(part) for part in names(text))


def add_tokenizer(add: argparse.ArgumentParser) -> None:
    """Adds --tokenizer."""
    add.add_argument(
        "--tokenizer",
        default=str(POCKET),
        metavar="DIR",
        help="folder with tokenizer.json; default: the pocket model's",
    )


def add_catalogue(add: argparse.ArgumentParser) -> None:
    """Adds --catalogue."""
    add.add_argument(
        "--catalogue",
        type=Path,
        metavar="FILE.toml",
        help="models of your own, in the form of serving/catalogue.toml; laid over these",
    )


def add_pool(add: argparse.ArgumentParser) -> None:
    """Adds the flags that say how a pool is started."""
    add.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="join this Ray cluster: HOST:PORT of its head, or auto",
    )
    add.add_argument(
        "--deadline",
        type=at_least(1),
        default=900,
        metavar="S",
        help="seconds that a model's replicas may take to start, downloading not counted "
        "(default: 900)",
    )
    add.add_argument(
        "--tensor-parallel",
        type=at_least(1),
        metavar="N",
        help="GPUs (or CPU workers) of one replica, all of one node, instead of the catalogue's",
    )
    add.add_argument(
        "--engine",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an engine argument of vLLM, e.g. max_num_seqs=128; may be given again. It is kept "
        "in the run's settings",
    )


def engine_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `--tensor-parallel` and `--engine` change, as engine arguments of vLLM."""
    changes: dict[str, Any] = dict(arguments.engine)
    if arguments.tensor_parallel is not None:
        changes["tensor_parallel_size"] = arguments.tensor_parallel
    return changes


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
