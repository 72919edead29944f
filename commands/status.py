"""`run.py status`: how a sweep is."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE, INCOMPLETE


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `status`."""
    add = commands.add_parser(
        "status",
        help="how a sweep is, in a few lines",
        description="Prints how a sweep is: cells, rates, errors, time left, the replicas' "
        "health. It reads one small file, so that it works from other hosts too. Exit code 0 if "
        "all is well, else 1.",
    )
    add.add_argument("run", type=Path, metavar="RUN_DIR", help="the --out of a sweep")
    add.set_defaults(command=status)


def status(arguments: argparse.Namespace) -> int:
    """run.py status"""
    from benchmarks.watch.state import status as state_of

    lines, well = state_of(arguments.run)
    print("\n".join(lines))
    return DONE if well else INCOMPLETE
