"""What several commands share: types of flags, flags, exit codes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

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
