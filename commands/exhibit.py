"""`run.py exhibit`: figures and tables of the papers, from printed numbers, runs, or both."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE, at_least, examples, names

DEFAULT_OUT = Path("results/exhibits")


def add_exhibit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `exhibit`."""
    add = commands.add_parser(
        "exhibit",
        help="draw a figure or table of the papers: as published, from runs, or both",
        description="Draws an exhibit by name: without a run from its published numbers, with "
        "runs beside them, never mixed. `all` draws every one that there is something for.",
        epilog=examples(
            "exhibit --list",
            "exhibit memagent-table-2                     # as published",
            "exhibit all results/run-a results/run-b      # with runs beside it",
        ),
    )
    add.add_argument("name", nargs="?", metavar="NAME", help="an exhibit's name, or all")
    add.add_argument(
        "run",
        type=Path,
        nargs="*",
        metavar="RUN",
        help="the --out of sweeps, or exports; of RL runs for the figures of training",
    )
    add.add_argument("--list", action="store_true", help="say which exhibits there are")
    add.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help=f"default: {DEFAULT_OUT}"
    )
    add.add_argument(
        "--forms", type=names, metavar="FORM,...", help="default: png,pdf,svg,csv,md,tex"
    )
    add.add_argument("--ours-alone", action="store_true", help="leave published numbers out")
    add.add_argument("--task", metavar="NAME", help="case studies: the sample's task")
    add.add_argument("--length", type=at_least(0), metavar="TOKENS", help="and its length")
    add.add_argument("--sample", type=at_least(0), metavar="N", help="and its number, from 0")
    add.set_defaults(command=exhibit)


def exhibit(arguments: argparse.Namespace) -> int:
    """run.py exhibit"""
    from core.errors import UsageError
    from core.names import not_known
    from reports.exhibits.exhibit import Sampled
    from reports.exhibits.registry import EXHIBITS, find_exhibit
    from reports.exhibits.write import FORMS, draw, gather, nothing, write

    if arguments.list:
        for found in EXHIBITS.values():
            whence = "published numbers" if found.printed else "from runs only"
            print(f"{found.name:24}  {whence:17}  {found.title}")
        return DONE
    if arguments.name is None:
        raise UsageError("exhibit: give a NAME, all, or --list")
    forms = arguments.forms or FORMS
    for form in forms:
        if form not in FORMS:
            raise UsageError(f"--forms: {not_known(form, FORMS)}")
    wanted = [*EXHIBITS.values()] if arguments.name == "all" else [find_exhibit(arguments.name)]
    sampled = Sampled(arguments.task, arguments.length, arguments.sample)
    material = gather(arguments.run, arguments.ours_alone, sampled)
    for one in wanted:
        drawn = one.draw(material) if len(wanted) > 1 else draw(one, material)
        if drawn is None:
            print(f"{one.name}: {nothing(one, material)}")
            continue
        for path in write(one, drawn, arguments.out, forms):
            print(path)
    return DONE
