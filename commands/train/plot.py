"""`run.py train plot`: the curves of RL runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from commands.flags import DONE, examples
from core.errors import UsageError


def add_plot(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train plot`."""
    add = kinds.add_parser(
        "plot",
        help="draw the curves of RL runs",
        description="Draws metrics.jsonl of one run, or of several (seeds) over one another.",
        epilog=examples(
            "train plot results/train/pocket-memagent",
            "train plot results/train/seed-1 results/train/seed-2 --out results/train/seeds",
        ),
    )
    add.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="the --out of `train rl`")
    add.add_argument("--out", type=Path, metavar="DIR", help="default for one run: its folder")
    add.set_defaults(command=plot)


def plot(arguments: argparse.Namespace) -> int:
    """run.py train plot"""
    from reports.figures.training.pages import draw_metrics
    from training.rl.loop import METRICS_FILE

    runs: Sequence[Path] = arguments.runs
    if arguments.out is None and len(runs) > 1:
        raise UsageError("several runs in one figure: name a folder for it with --out DIR")
    for path in draw_metrics([run / METRICS_FILE for run in runs], arguments.out or runs[0]):
        print(f"figure  {path}")
    return DONE
