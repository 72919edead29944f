"""`run.py train warmstart`: a pocket model from nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from commands.flags import DONE, POCKET, examples


def add_warmstart(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train warmstart`."""
    add = kinds.add_parser(
        "warmstart",
        help="train the pocket model from nothing, on generated demonstrations",
        description="Trains the pocket model's tokenizer and weights by supervised learning. "
        "Stop it at any time: the same command goes on.",
        epilog=examples(
            "train warmstart --out results/base-first    # pocket-base, its first part",
            "train warmstart --recipe mine.json --model results/base-first --out results/mine",
        ),
    )
    add.add_argument(
        "--recipe",
        type=Path,
        default=POCKET / "first" / "recipe.json",
        metavar="FILE",
        help="default: that of pocket-base's first part, which starts from nothing",
    )
    add.add_argument(
        "--model",
        metavar="DIR",
        help='the checkpoint that a recipe with init "checkpoint" goes on from',
    )
    add.add_argument("--out", type=Path, default=Path("results/warmstart"), metavar="DIR")
    add.add_argument("--device", metavar="NAME", help="cpu or cuda; default: what there is")
    add.add_argument("--fresh", action="store_true", help="begin anew, do not go on")
    add.set_defaults(command=train_warmstart)


def train_warmstart(arguments: argparse.Namespace) -> int:
    """run.py train warmstart"""
    from commands.train.steps import warmstart_line
    from training.memory import keep_freed_memory
    from training.warmstart.curve import draw_curve
    from training.warmstart.recipe import load_recipe
    from training.warmstart.train import train_warmstart as train

    def show(step: int, metrics: Mapping[str, float]) -> None:
        print(warmstart_line(step, recipe.most_steps, metrics, recipe.batch_tokens), flush=True)

    keep_freed_memory()
    recipe = load_recipe(arguments.recipe, model=arguments.model)
    train(recipe, arguments.out, device=arguments.device, resume=not arguments.fresh, on_step=show)
    print(f"checkpoint  {arguments.out}\ncurve       {draw_curve(arguments.out)}")
    return DONE
