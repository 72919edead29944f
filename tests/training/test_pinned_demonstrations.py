"""Same seed, same demonstrations: what the committed warm starts were trained on, by hash."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from serving.catalogue import find_model
from training.warmstart.batches import Batch, training_batch, write
from training.warmstart.demonstrations import DemonstrationWriter, Kind
from training.warmstart.pocket_tokenizer import build_pocket_tokenizer
from training.warmstart.recipe import Course, WarmstartRecipe, load_recipe
from training.warmstart.train import held_out_batches

ROOT = Path(__file__).parents[2]
RECIPES = {
    "pocket-base/first": ROOT / "checkpoints" / "pocket-base" / "first" / "recipe.json",
    "pocket-base": ROOT / "checkpoints" / "pocket-base" / "recipe.json",
    "pocket-long": ROOT / "checkpoints" / "pocket-long" / "recipe.json",
}
STARTS_FROM = {"pocket-base": "pocket-base/first"}
STEPS_PINNED = 24
"""Of each run, evenly apart, so that every stage and every bucket is drawn."""

TRAINING = {
    "pocket-base/first": "551f345528fb331e",
    "pocket-base": "b184587132c0d01a",
    "pocket-long": "db5beb4275edd93a",
}
HELD_OUT = {
    "pocket-base/first": "a27bf245f2c7780d",
    "pocket-base": "4e38d3ef3ca8d6f1",
    "pocket-long": "5352b2f912bee03f",
}


def writer_of(recipe: WarmstartRecipe) -> DemonstrationWriter:
    return DemonstrationWriter(build_pocket_tokenizer(), recipe.form)


def digest(batches: list[Batch], *, looks: bool = False) -> str:
    """`looks`: of what attention is shown, too."""
    found = hashlib.sha256()
    for batch in batches:
        for tensor in (batch.ids_BT, batch.rows_N, batch.columns_N, batch.targets_N):
            assert isinstance(tensor, Tensor)
            found.update(tensor.numpy().tobytes())
        if batch.points_3P.numel() and looks:
            found.update(batch.points_3P.numpy().tobytes())
            found.update(batch.sources_4M.numpy().tobytes())
            found.update(batch.titles_4Q.numpy().tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", TRAINING)
def test_training_batches_are_those_of_the_committed_runs(name: str) -> None:
    recipe = load_recipe(RECIPES[name], model=STARTS_FROM.get(name))
    writer, looks = writer_of(recipe), any(stage.looks for stage in recipe.stages)
    course = Course(recipe)
    batches = [
        training_batch(writer, recipe, course.stage_at(step), step, pad=0)
        for step in range(0, recipe.most_steps, recipe.most_steps // STEPS_PINNED)
    ]
    assert sum(len(batch.ids_BT) for batch in batches) > 200
    assert digest(batches, looks=looks) == TRAINING[name]


@pytest.mark.parametrize("name", HELD_OUT)
def test_held_out_turns_are_those_of_the_committed_curves(name: str) -> None:
    recipe = load_recipe(RECIPES[name], model=STARTS_FROM.get(name))
    held_out = held_out_batches(writer_of(recipe), recipe, pad=0)
    assert digest([*held_out.values()]) == HELD_OUT[name]


@pytest.mark.parametrize(
    ("method", "kinds"),
    [("memagent", ("memory", "answer")), ("gru_mem", ("gru_memory", "gru_answer"))],
)
def test_the_longest_replies_shown_fit_the_models_budget_and_no_more(
    method: str, kinds: tuple[Kind, ...]
) -> None:
    """A budget far above them would be filled by every memory that loops."""
    recipe = load_recipe(RECIPES["pocket-base"], model=STARTS_FROM["pocket-base"])
    writer, stage, rng = writer_of(recipe), recipe.stages[-1], np.random.default_rng(0)
    odds = replace(stage.odds, drill=0.0)  # which ask for more at once than any task
    tokens = max(bucket.tokens for bucket in stage.buckets)
    longest = max(
        len(write(writer, kind, task, tokens, odds, rng).reply)
        for kind in kinds
        for task in stage.tasks
        for _ in range(150)
    )
    budget = find_model("pocket-base").methods[method]["reply_tokens"]
    assert isinstance(budget, int)
    assert 0.6 * budget < longest <= budget, longest
