"""Types of command-line flags that several commands take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable


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
