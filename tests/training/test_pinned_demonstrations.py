"""Same seed, same demonstrations: what the committed warm starts were trained on, by hash."""

import hashlib
from pathlib import Path

import pytest
from torch import Tensor

from training.warmstart.batches import Batch, training_batch
from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.pocket_tokenizer import build_pocket_tokenizer
from training.warmstart.recipe import Course, WarmstartRecipe, load_recipe
from training.warmstart.train import held_out_batches

ROOT = Path(__file__).parents[2]
RECIPES = {
    "pocket-base": ROOT / "checkpoints" / "pocket-base" / "recipe.json",
    "pocket-long": ROOT / "checkpoints" / "pocket-long" / "recipe.json",
    "pocket2-base/first": ROOT / "checkpoints" / "pocket2-base" / "first" / "recipe.json",
    "pocket2-base": ROOT / "checkpoints" / "pocket2-base" / "recipe.json",
    "pocket2-long": ROOT / "checkpoints" / "pocket2-long" / "recipe.json",
}
STARTS_FROM = {"pocket2-base": "pocket2-base/first"}
STEPS_PINNED = 24
"""Of each run, evenly apart, so that every stage and every bucket is drawn."""

TRAINING = {
    "pocket-base": "bb282404e2034074",
    "pocket-long": "4eaea9e3e619471b",
    "pocket2-base/first": "551f345528fb331e",
    "pocket2-base": "b184587132c0d01a",
    "pocket2-long": "db5beb4275edd93a",
}
HELD_OUT = {
    "pocket-base": "87180ca222cf3e25",
    "pocket-long": "05d15f9ea00390ca",
    "pocket2-base/first": "a27bf245f2c7780d",
    "pocket2-base": "4e38d3ef3ca8d6f1",
    "pocket2-long": "5352b2f912bee03f",
}


def writer_of(recipe: WarmstartRecipe) -> DemonstrationWriter:
    return DemonstrationWriter(build_pocket_tokenizer(recipe.vocabulary), recipe.form)


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
