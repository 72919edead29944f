"""`run.py report`: figures, tables and one page of a run, or of several as one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

from commands.flags import DONE, at_least, examples


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `report`."""
    add = commands.add_parser(
        "report",
        help="render figures, tables and page of a run, or of several as one",
        description="Renders one page of all the runs given, each cell from one of them.",
        epilog=examples(
            "report results/pocket                        # writes results/pocket/report",
            "report results/mine samples.jsonl.gz --out page --reference memagent",
        ),
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
    add.add_argument(
        "--turns",
        type=_turns,
        metavar="all|failures|N",
        help="of which samples the page holds the turns: of so many, failures first (default: "
        "24); `run.py view` shows those of all",
    )
    add.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of the corpora, to make the text of turns again; default: the sweep's --data",
    )
    add.set_defaults(command=report)


def report(arguments: argparse.Namespace) -> int:
    """run.py report"""
    from reports.explorer.page import DEFAULT_TURNS
    from reports.report import write_report

    files = write_report(
        arguments.run,
        arguments.out,
        arguments.reference,
        turns=DEFAULT_TURNS if arguments.turns is None else arguments.turns,
        data=arguments.data,
    )
    print(f"page    {files.page}")
    return DONE


def _turns(text: str) -> Literal["all", "failures"] | int:
    if text == "all":
        return "all"
    if text == "failures":
        return "failures"
    try:
        return at_least(0)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not all, failures or a number") from error
