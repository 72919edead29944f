"""When a curriculum's stages begin and end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen2Config

from core.errors import UsageError
from tests.training.test_batches import SINGLE, small_recipe
from training.warmstart import recipe as recipe_module
from training.warmstart.batches import training_batch
from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.pocket_tokenizer import save_pocket_tokenizer
from training.warmstart.recipe import (
    HERE,
    Bucket,
    Course,
    Stage,
    WarmstartRecipe,
    course_of,
    load_recipe,
)
from training.warmstart.stories import TaskShape
from training.warmstart.train import train_warmstart

BUCKETS = (Bucket(160, 1.0, answer=1.0),)


def staged(until: float | None) -> WarmstartRecipe:
    first = Stage(6, BUCKETS, (SINGLE,), near=0.0, until=until)
    last = Stage(4, BUCKETS, (SINGLE,), near=0.1)
    return replace(small_recipe(), stages=(first, last), decay_steps=2)


def row(step: int, share: float) -> dict[str, float]:
    return {"step": step, f"{HERE}0 memory/niah_single_1": share, "memory/niah_single_1": 1.0}


def test_a_stage_ends_when_its_turns_are_exact_or_at_its_length() -> None:
    recipe = staged(until=0.5)
    slow = course_of(recipe, [row(2, 0.1), row(4, 0.4)])
    assert [slow.number_at(step) for step in range(10)] == [0] * 6 + [1] * 4
    assert slow.ends(9) == 10
    quick = course_of(recipe, [row(2, 0.1), row(4, 0.6), row(6, 0.9)])
    assert [quick.number_at(step) for step in range(8)] == [0] * 4 + [1] * 4
    assert quick.ends(4) == 8


def test_the_rate_falls_at_the_end_of_the_last_stage_alone() -> None:
    recipe = staged(until=0.5)
    rates = [Course(recipe, (0, 4)).rate_at(step) for step in range(8)]
    assert rates[1:6] == [recipe.learning_rate] * 5
    assert rates[6:] == [recipe.learning_rate, recipe.learning_rate / 2]
    assert Course(recipe).ends(3) is None


def test_the_rate_may_fall_through_several_stages_of_known_length() -> None:
    recipe = replace(staged(until=None), decay_steps=8)
    rates = [Course(recipe).rate_at(step) / recipe.learning_rate for step in range(1, 10)]
    assert rates == [1.0, 1.0, *(left / 8 for left in range(7, 0, -1))]
    with pytest.raises(UsageError, match="at most the 4 steps of the last stages"):
        replace(staged(until=0.5), decay_steps=8)


def test_a_killed_run_of_a_curriculum_ends_with_the_unbroken_runs_weights(tmp_path: Path) -> None:
    recipe = staged(until=0.0)  # any share will do: the first evaluation ends the stage

    class Killed(Exception):
        pass

    def kill(step: int, metrics: object) -> None:
        if step == 4:
            raise Killed

    whole = train_warmstart(recipe, tmp_path / "whole", device="cpu")
    with pytest.raises(Killed):
        train_warmstart(recipe, tmp_path / "broken", device="cpu", on_step=kill)
    broken = train_warmstart(recipe, tmp_path / "broken", device="cpu")
    one, two = (load_file(folder / "model.safetensors") for folder in (whole, broken))
    assert all(torch.equal(one[name], two[name]) for name in one)
    for folder in (whole, broken):
        lines = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
        assert [(line["step"], line["stage"]) for line in lines] == [(2, 0), (4, 1), (6, 1)]
        assert all(0 <= line["padding"] < 1 for line in lines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": (Stage(4, BUCKETS, (SINGLE,), 0.0, until=0.9),)}, "the last stage"),
        ({"decay_steps": 5}, "decay_steps 5, expected at most the 4 steps"),
        (
            {
                "stages": (
                    Stage(
                        4, BUCKETS, (TaskShape("fiction_2hop", "documents", least_tokens=288),), 0.0
                    ),
                )
            },
            "shorter than the least_tokens",
        ),
        (
            {
                "stages": (
                    Stage(
                        4,
                        (*BUCKETS, Bucket(640, 1.0)),
                        (SINGLE, TaskShape("fiction_2hop", "documents", least_tokens=288)),
                        0.0,
                    ),
                )
            },
            "no stage draws fiction_2hop as answer",
        ),
    ],
)
def test_a_curriculum_that_cannot_be_gone_through_is_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(small_recipe(), **change)  # type: ignore[arg-type]


def test_a_control_goes_on_from_a_checkpoint_of_its_own_shape(tmp_path: Path) -> None:
    base = train_warmstart(small_recipe(steps=2), tmp_path / "base", device="cpu")
    still = replace(small_recipe(steps=2), init="checkpoint", model=str(base), learning_rate=0.0)
    out = train_warmstart(still, tmp_path / "control", device="cpu")
    one, two = (load_file(folder / "model.safetensors") for folder in (base, out))
    assert all(torch.equal(one[name], two[name]) for name in one)
    wide = replace(still, shape=replace(still.shape, window_tokens=2048))
    config = Qwen2Config.from_pretrained(train_warmstart(wide, tmp_path / "wide", device="cpu"))
    assert config.max_position_embeddings == 2048
    other = replace(still, shape=replace(still.shape, layers=2))
    with pytest.raises(UsageError, match="num_hidden_layers"):
        train_warmstart(other, tmp_path / "other", device="cpu")
    with pytest.raises(UsageError, match="--model"):
        replace(still, model=None)


RECIPES = Path(recipe_module.__file__).parent / "recipes"
BASE = Path(__file__).parents[2] / "checkpoints" / "pocket-base"


@pytest.mark.parametrize(
    "file",
    [
        BASE / "first" / "recipe.json",
        BASE / "recipe.json",
        BASE.parent / "pocket-long" / "recipe.json",
        RECIPES / "pocket-control.json",
    ],
    ids=lambda file: f"{file.parent.name}/{file.stem}",
)
def test_recipes_draw_every_stage(file: Path, tmp_path: Path) -> None:
    goes_on = '"init": "checkpoint"' in file.read_text(encoding="utf-8")
    recipe = load_recipe(file, model="base" if goes_on else None)
    assert {task.base for task in recipe.stages[-1].tasks} >= {
        "niah_multikey_2",
        "vt",
        "fiction_2hop",
    }
    window = recipe.shape.window_tokens
    save_pocket_tokenizer(tmp_path, window_tokens=window)
    writer = DemonstrationWriter(Tokenizer.from_file(str(tmp_path / "tokenizer.json")), recipe.form)
    for number, stage in enumerate(recipe.stages):
        for step in range(number, number + 6):
            batch = training_batch(writer, recipe, stage, step, pad=0)
            assert len(batch.targets_N) > 20
