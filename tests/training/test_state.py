"""What a run keeps: the state that it goes on from, its metrics, its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from core.errors import SettingsChanged
from tests.training.rl.tiny import tiny_model
from training.state import (
    RECIPE_FILE,
    STATE_FILE,
    append_line,
    claim,
    drop_lines_after,
    load_state,
    save_checkpoint,
    save_state,
)


def learner(seed: int) -> tuple[nn.Linear, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def learn(model: nn.Linear, optimizer: torch.optim.AdamW, times: int) -> None:
    for _ in range(times):
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_state_goes_on_as_if_unbroken(tmp_path: Path) -> None:
    model, optimizer = learner(0)
    learn(model, optimizer, 2)
    save_state(tmp_path, model, optimizer, 2)
    other, other_optimizer = learner(1)
    assert load_state(tmp_path, other, other_optimizer) == 2
    learn(model, optimizer, 2)
    learn(other, other_optimizer, 2)
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


def test_without_a_state_a_run_begins_at_0(tmp_path: Path) -> None:
    model, optimizer = learner(0)
    before = model.weight.clone()
    assert load_state(tmp_path, model, optimizer) == 0
    assert torch.equal(model.weight, before)


def test_a_weight_that_never_moved_is_kept_without_moments(tmp_path: Path) -> None:
    model, optimizer = learner(0)
    model.bias.requires_grad_(False)
    learn(model, optimizer, 1)
    save_state(tmp_path, model, optimizer, 1)
    other, other_optimizer = learner(1)
    load_state(tmp_path, other, other_optimizer)
    assert torch.equal(model.bias, other.bias)
    assert set(other_optimizer.state) == {other.weight}


def test_a_folder_belongs_to_one_recipe_once_it_holds_a_state(tmp_path: Path) -> None:
    claim(tmp_path, "one", resume=True)
    claim(tmp_path, "two", resume=False)  # nothing was trained yet
    model, optimizer = learner(0)
    save_state(tmp_path, model, optimizer, 1)
    claim(tmp_path, "two", resume=True)
    with pytest.raises(SettingsChanged, match="another recipe"):
        claim(tmp_path, "one", resume=True)
    with pytest.raises(SettingsChanged, match="resume it"):
        claim(tmp_path, "two", resume=False)
    (tmp_path / RECIPE_FILE).unlink()
    with pytest.raises(SettingsChanged, match="another recipe"):
        claim(tmp_path, "two", resume=True)
    assert [path.name for path in tmp_path.glob("state*")] == [STATE_FILE]


def test_servers_take_the_weights_and_not_the_state(tmp_path: Path) -> None:
    """vLLM loads each safetensors file of a folder that its index, if any, does not leave out."""
    model = tiny_model()
    save_checkpoint(model, tmp_path)
    save_state(tmp_path, model, torch.optim.AdamW(model.parameters()), 1)
    weights = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(weights.values()) == {"model.safetensors"}
    assert weights.keys() == {name for name, _ in model.named_parameters()}
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    assert len({path.stat().st_mode for path in tmp_path.glob("[cgm]*")}) == 1  # for all to read


def test_lines_after_a_step_are_dropped_and_a_torn_one_too(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    drop_lines_after(path, 1)  # no file, nothing to drop
    for step in range(4):
        append_line(path, {"step": step, "reward": None})
    with path.open("a") as file:
        file.write('{"step": 4, "rew')
    drop_lines_after(path, 9)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2, 3]
    drop_lines_after(path, 1)
    append_line(path, {"step": 2, "reward": 0.5})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[-1]["reward"] == 0.5


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_loads_as_plain_qwen2(tmp_path: Path, tied: bool) -> None:
    model = tiny_model(tied=tied)
    save_checkpoint(model, tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.dtype == torch.bfloat16
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.bfloat16()), name
    assert again.generation_config.eos_token_id == model.config.eos_token_id
    assert not again.generation_config.do_sample
    save_checkpoint(again, tmp_path)
    assert str(tmp_path) not in (tmp_path / "config.json").read_text()  # it was loaded from there
