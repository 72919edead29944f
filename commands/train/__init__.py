"""`run.py train`: a file a kind of training."""

from __future__ import annotations

import argparse

from commands.flags import examples
from commands.train.clean import add_clean
from commands.train.plot import add_plot
from commands.train.rl import add_rl
from commands.train.scores import add_scores
from commands.train.warmstart import add_warmstart


def add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train` with all that it can do."""
    train = commands.add_parser(
        "train",
        help="train a model",
        description="Trains models: the pocket ones from nothing, memory agents by reinforcement "
        "learning. `run.py train KIND --help` says more.",
        epilog=examples(
            "train rl --list",
            "train rl pocket-memagent",
            "train warmstart --help",
        ),
    )
    kinds = train.add_subparsers(title="kinds of training", required=True, metavar="KIND")
    for add in (add_warmstart, add_scores, add_rl, add_plot, add_clean):
        add(kinds)
