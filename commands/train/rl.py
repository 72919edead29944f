"""`run.py train rl`: its flags, and what it calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, INCOMPLETE, at_least, examples
from core.errors import UsageError

if TYPE_CHECKING:
    from training.rl.recipe import RlRecipe

RUNS = Path("results/train")


def add_rl(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train rl`."""
    add = kinds.add_parser(
        "rl",
        help="train a memory agent by reinforcement learning",
        description="Trains MemAgent (Multi-Conv DAPO) or GRU-Mem by a recipe, and writes a "
        "checkpoint that can be served, with its recipe, metrics and curves. Stop it at any time: "
        "the same command goes on from the last saved step. --list names the recipes.",
        epilog=examples(
            "train rl --list",
            "train rl pocket-memagent                     # needs nothing",
            "train rl memagent-7b --data DIR --workers 8  # a GPU each",
            "train rl pocket-grumem --steps 20 --seed 1 --out results/train/short",
        ),
    )
    add.add_argument("recipe", nargs="?", metavar="PRESET|FILE", help="see --list")
    add.add_argument("--list", action="store_true", help="list the presets, and train nothing")
    add.add_argument("--out", type=Path, metavar="DIR", help=f"default: {RUNS}/PRESET")
    add.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")
    add.add_argument("--device", metavar="NAME", help="cpu or cuda; default: what there is")
    add.add_argument(
        "--workers",
        type=at_least(1),
        metavar="N",
        help="share it among N Ray Train workers, a GPU each",
    )
    add.add_argument(
        "--ray-address", metavar="HOST:PORT", help="with --workers: of a running Ray cluster"
    )
    add.add_argument("--fresh", action="store_true", help="begin anew, do not go on")
    add.add_argument("--model", metavar="NAME|DIR", help="to start from, not the recipe's")
    add.add_argument("--steps", type=at_least(1), metavar="N", help="instead of the recipe's")
    add.add_argument("--seed", type=at_least(0), metavar="S", help="instead of the recipe's")
    add.set_defaults(command=train_rl)


def train_rl(arguments: argparse.Namespace) -> int:
    """run.py train rl"""
    from training.rl.recipe import load_rl_recipe, rl_preset_names

    if arguments.list:
        names = rl_preset_names()
        width = max(map(len, names))
        for name in names:
            print(f"{name:{width}}  {preset_summary(name)}")
        return DONE
    if arguments.recipe is None:
        raise UsageError(f"no recipe given; there are: {', '.join(rl_preset_names())}")
    recipe = _changed(load_rl_recipe(arguments.recipe), arguments)
    return _train(recipe, arguments.out or RUNS / recipe.name, arguments)


def _train(recipe: RlRecipe, out: Path, arguments: argparse.Namespace) -> int:
    from transformers.utils.logging import disable_progress_bar

    from commands.train.steps import StepLines
    from reports.figures.training.pages import draw_metrics
    from training.memory import keep_freed_memory
    from training.rl.loop import METRICS_FILE

    keep_freed_memory()
    disable_progress_bar()  # of weights that are loaded in no time
    train = _trainer(arguments.workers, arguments.ray_address)
    try:
        train(
            recipe,
            out,
            data=arguments.data,
            device=arguments.device,
            resume=not arguments.fresh,
            on_step=StepLines(recipe.steps),
        )
    except KeyboardInterrupt:
        print(
            f"\nStopped. The same command goes on from the last saved step (one in every "
            f"{recipe.save_every}).",
            file=sys.stderr,
        )
        return INCOMPLETE
    curves = draw_metrics([out / METRICS_FILE], out)
    print(f"checkpoint  {out}\nmetrics     {out / METRICS_FILE}")
    print(f"curves      {', '.join(map(str, curves))}")
    return DONE


def _trainer(workers: int | None, ray_address: str | None) -> Callable[..., Path]:
    """In this process, or shared among workers."""
    if workers is not None:
        from training.rl.learner.workers import Workers, train_sharded

        return partial(train_sharded, workers=Workers(workers, ray_address))
    if ray_address is not None:
        raise UsageError("--ray-address: say with --workers how many workers to start there")
    from training.rl.run import train_rl

    return train_rl


def _changed(recipe: RlRecipe, arguments: argparse.Namespace) -> RlRecipe:
    """The recipe with what flags say instead."""
    given = {name: getattr(arguments, name) for name in ("steps", "seed", "model")}
    changes = {name: value for name, value in given.items() if value is not None}
    return recipe.model_copy(update=changes)


def preset_summary(name: str) -> str:
    """The first sentence of the comment that a preset begins with."""
    from training.rl.recipe import PRESETS

    words: list[str] = []
    for line in (PRESETS / f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words += line.removeprefix("#").split()
    return " ".join(words).partition(". ")[0].removesuffix(".")
