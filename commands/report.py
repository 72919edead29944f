"""`run.py report`: figures, tables and one page of a run, or of several as one."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `report`."""
    add = commands.add_parser(
        "report",
        help="render figures, tables and page of a run, or of several as one",
        description="Renders one page of all the runs given, each cell from one of them.",
    )
    add.add_argument(
        "run",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="the --out of a sweep, or a file that `run.py export` wrote",
    )
    add.add_argument("--out", type=Path, metavar="DIR", help="default for one folder: RUN/report")
    add.add_argument(
        "--reference",
        metavar="NAME",
        help="what paired tests compare all others with: a model, a method, or MODEL:METHOD; "
        "default: the first of the suite",
    )
    add.set_defaults(command=report)


def report(arguments: argparse.Namespace) -> int:
    """run.py report"""
    from reports.report import write_report

    files = write_report(arguments.run, arguments.out, arguments.reference)
    print(f"page    {files.page}")
    return DONE
