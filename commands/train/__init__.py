"""`run.py train`: a file a kind of training."""

from __future__ import annotations

import argparse

from commands.train.clean import add_clean
from commands.train.plot import add_plot
from commands.train.rl import add_rl
from commands.train.scores import add_scores
from commands.train.warmstart import add_warmstart


def add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train` with all that it can do."""
    train = commands.add_parser("train", help="train a model")
    kinds = train.add_subparsers(title="kinds of training", required=True, metavar="KIND")
    for add in (add_warmstart, add_scores, add_rl, add_plot, add_clean):
        add(kinds)
