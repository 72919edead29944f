"""Tokens a second of the warm start's steps in float32 and in bfloat16 on this machine's CPU, and
the ratio, in one run: steps of a recipe's last stage from random weights, of the same batches.

    python perf/warmstart.py [--recipe FILE] [--steps 6]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from training.memory import keep_freed_memory
from training.warmstart.recipe import Precision, WarmstartRecipe, load_recipe
from training.warmstart.train import train_warmstart

RECIPE = Path(__file__).parents[1] / "checkpoints" / "pocket-base" / "first" / "recipe.json"
PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float32")


def rate(recipe: WarmstartRecipe, precision: Precision, steps: int) -> float:
    """Tokens a second, padding and the making of batches included."""
    short = replace(
        recipe,
        precision=precision,
        init="random",
        model=None,
        stages=(replace(recipe.stages[-1], steps=steps),),
        decay_steps=1,
        eval_every=steps,
        eval_samples=2,
    )
    told: list[float] = []

    def note(step: int, metrics: Mapping[str, float]) -> None:
        told.append(metrics["tokens_per_s"])

    with tempfile.TemporaryDirectory() as out:
        train_warmstart(short, Path(out), device="cpu", on_step=note)
    return told[-1]


def main() -> None:
    """Measures both, reference first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    keep_freed_memory()
    recipe = load_recipe(arguments.recipe)
    rates = {one: rate(recipe, one, arguments.steps) for one in PRECISIONS}
    for precision, tokens in rates.items():
        print(f"{precision}: {tokens:.0f} tokens/s")
    print(f"ratio float32 / bfloat16: {rates['float32'] / rates['bfloat16']:.2f}")


if __name__ == "__main__":
    main()
