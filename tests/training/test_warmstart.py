import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2ForCausalLM

from commands.train.steps import warmstart_line
from core.errors import SettingsChanged, UsageError
from tests.training.test_batches import small_recipe
from training.warmstart.recipe import Course, Precision, load_recipe, recipe_json
from training.warmstart.train import train_warmstart

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "checkpoints" / "pocket-base" / "first"


class Killed(Exception):
    """What the tests end a run with."""


def test_a_killed_run_ends_with_the_unbroken_runs_weights(tmp_path: Path) -> None:
    recipe = small_recipe()
    whole = train_warmstart(recipe, tmp_path / "whole", device="cpu")

    def kill(step: int, metrics: object) -> None:
        if step == 4:
            raise Killed

    with pytest.raises(Killed):
        train_warmstart(recipe, tmp_path / "broken", device="cpu", on_step=kill)
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    broken = train_warmstart(recipe, tmp_path / "broken", device="cpu")
    one, two = (load_file(folder / "model.safetensors") for folder in (whole, broken))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    lines = (broken / "curve.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == [2, 4]


def test_a_run_is_told_of_between_evaluations_too(tmp_path: Path) -> None:
    told: dict[int, Mapping[str, float]] = {}
    recipe = replace(small_recipe(), save_every=1)
    train_warmstart(recipe, tmp_path, device="cpu", on_step=told.__setitem__)
    assert [*told] == [1, 2, 3, 4]
    assert all(metrics["loss"] > 0 for metrics in told.values())
    evaluated = [step for step, metrics in told.items() if any("/" in name for name in metrics)]
    curve = (tmp_path / "curve.jsonl").read_text().splitlines()
    assert evaluated == [json.loads(line)["step"] for line in curve] == [2, 4]


def test_a_line_says_how_far_a_warm_start_is() -> None:
    metrics = {"stage": 3, "loss": 0.21044, "tokens_per_s": 3413}
    assert warmstart_line(1950, 4750, metrics, 8192) == (
        "step 1950/4750  stage 3  loss 0.2104  3.4K tokens/s  left 1 h 52 min"
    )
    shares = {"update/vt": 0.5, "keep/vt": 1.0, "stage 3 update/vt": 0.25}
    line = warmstart_line(1950, 4750, metrics | shares, 8192)
    assert "exact 0.750  of the stage's own 0.250  3.4K" in line


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_the_precision_of_the_products_is_the_recipes(
    tmp_path: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.dtype] = set()
    linear = torch.nn.functional.linear

    def noted(*arguments: torch.Tensor) -> torch.Tensor:
        made = linear(*arguments)
        seen.add(made.dtype)
        return made

    monkeypatch.setattr(torch.nn.functional, "linear", noted)
    train_warmstart(replace(small_recipe(steps=2), precision=precision), tmp_path, device="cpu")
    assert seen == {getattr(torch, precision)}


def test_a_checkpoint_loads_as_plain_qwen2(tmp_path: Path) -> None:
    out = train_warmstart(small_recipe(steps=2), tmp_path, device="cpu")
    model = Qwen2ForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings
    assert model.config.hidden_size // model.config.num_attention_heads == 64


def test_another_recipe_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    recipe = small_recipe(steps=2)
    train_warmstart(recipe, tmp_path, device="cpu")
    with pytest.raises(SettingsChanged, match="another recipe"):
        train_warmstart(replace(recipe, seed=4), tmp_path, device="cpu")
    with pytest.raises(SettingsChanged, match="resume it"):
        train_warmstart(recipe, tmp_path, device="cpu", resume=False)


def test_recipe_file_comes_back(tmp_path: Path) -> None:
    recipe = load_recipe(CHECKPOINT / "recipe.json")
    (tmp_path / "recipe.json").write_text(recipe_json(recipe))
    assert load_recipe(tmp_path / "recipe.json") == recipe
    course = Course(recipe)
    assert course.stage_at(recipe.most_steps - 1) == recipe.stages[-1]
    assert course.ends(recipe.most_steps - 1) == recipe.most_steps
    assert course.rate_at(recipe.most_steps) == 0.0


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        ((), "sed", 3, "setting 'sed' is not known; did you mean seed"),
        (("stages", 0), "slip", 0.1, "stages number 1 slip: got 0.1: there is no such setting"),
        (
            ("stages", 0),
            "steps",
            "many",
            "number 1 steps: got 'many': Input should be a valid int",
        ),
        (
            ("stages", 0, "tasks", 0),
            "haystak",
            "noise",
            "stages number 1 tasks number 1 haystak: got",
        ),
        (
            ("stages", 1, "buckets", 0),
            "tokens",
            [],
            r"number 2 buckets number 1 tokens: got \[\]",
        ),
        (("shape",), "widht", 256, "shape widht: got 256: there is no"),
        ((), "stages", 5, "stages: got 5"),
    ],
)
def test_a_wrong_field_of_a_recipe_is_named(
    tmp_path: Path, place: tuple[str | int, ...], key: str, value: object, message: str
) -> None:
    data = json.loads((CHECKPOINT / "recipe.json").read_text())
    at = data
    for step in place:
        at = at[step]
    at[key] = value
    (tmp_path / "mine.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=message) as caught:
        load_recipe(tmp_path / "mine.json")
    assert "mine.json" in str(caught.value)


def test_a_file_that_is_no_recipe_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("[1]")
    with pytest.raises(UsageError, match="got list, expected an object"):
        load_recipe(tmp_path / "mine.json")
    with pytest.raises(UsageError, match="cannot be read"):
        load_recipe(tmp_path / "none.json")


def test_the_warm_start_needs_neither_ray_nor_vllm() -> None:
    code = (
        "import sys, training.warmstart.train; "
        "sys.exit(any(m in sys.modules for m in ('ray', 'vllm')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
