"""The whole loop on two Ray Train workers, one of them killed on the way, against one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from core.errors import UsageError
from tests.tiny_model import write_tiny_model
from tests.training.rl.small import read_state, small_recipe
from training.rl.learner.workers import Workers, train_sharded
from training.rl.loss import LossSettings
from training.rl.recipe import Overlong, RlRecipe, TaskShare, Validation, recipe_json
from training.rl.run import train_rl

STEPS = 5
DRIVER = """
import os, signal, sys
from pathlib import Path

import psutil

from training.rl.recipe import RlRecipe
from training.rl.learner import workers as workers_module
from training.rl.learner.workers import Workers, train_sharded

workers_module.FOLLOW_S = 0.05
out = Path(sys.argv[2])
told, done, open_to_all = [], [], []

def kill_one(step, metrics):
    told.append(step)
    if step == 1:
        children = psutil.Process().children(recursive=True)
        open_to_all.extend(
            (process.name(), *listener.laddr)
            for process in children
            for listener in process.net_connections("inet")
            if listener.status == psutil.CONN_LISTEN
            if listener.laddr.ip not in ("127.0.0.1", "::ffff:127.0.0.1", "::1")
        )
        workers = [one for one in children if "RayTrainWorker" in " ".join(one.cmdline())]
        assert len(workers) == 2, workers
        workers[0].send_signal(signal.SIGKILL)
        done.append(len((out / "metrics.jsonl").read_text().splitlines()) - 1)

if __name__ == "__main__":
    recipe = RlRecipe.model_validate_json(Path(sys.argv[1]).read_text())
    train_sharded(recipe, out, Workers(2), device="cpu", on_step=kill_one)
    print("open to all", open_to_all)
    print("steps when killed", *done)
    print("told", *told)
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> RlRecipe:
    """A model of random weights that ends a reply at one token in seven; the shorter its replies
    the better, which teaches it something."""
    folder = tmp_path_factory.mktemp("model")
    write_tiny_model(folder, window_tokens=2048)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {"eos_token_id": list(range(3, 60))}))
    task = TaskShare(name="niah_single_1", lengths=(512,))
    return small_recipe(
        tasks=(task,),
        validation=Validation(every=2, samples=1, tasks=(task,)),
        model=str(folder),
        chunk_tokens=256,
        reply_tokens=24,
        groups=2,
        steps=STEPS,
        overlong=Overlong(limit=24, cache=24),
        loss=LossSettings(kl_beta=0.01),
        micro_batch_tokens=4096,
    )


@pytest.mark.cluster
def test_two_workers_train_as_one_process_and_outlive_a_killed_one(
    recipe: RlRecipe, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (tmp_path / "recipe.json").write_text(recipe_json(recipe))
    (tmp_path / "driver.py").write_text(DRIVER)
    ran = subprocess.run(
        [sys.executable, "driver.py", "recipe.json", "two"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    *_, open_to_all, killed, told = ran.stdout.splitlines()
    assert open_to_all == "open to all []"
    assert int(killed.rpartition(" ")[2]) < STEPS
    assert told == "told " + " ".join(map(str, range(STEPS + 1)))
    train_rl(recipe, one, device="cpu")

    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (one, two)]
    for alone, shared in zip(*lines, strict=True):
        expected = {k: v for k, v in json.loads(alone).items() if not k.endswith("seconds")}
        found = json.loads(shared)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-2, abs=1e-4), name
    norms = [json.loads(line)["gradient_norm"] for line in lines[0][1:]]
    assert max(norms) > 0.01  # there was something to learn
    states = [read_state(folder) for folder in (one, two)]
    start = load_file(Path(recipe.model) / "model.safetensors")
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        part, _, weight = name.partition("/")
        if part == "weight":
            assert not torch.equal(tensor, start[weight].float())
            assert float((tensor - states[1][name]).abs().max()) < 0.3 * recipe.learning_rate
    names = {path.name for path in two.iterdir()}
    assert names == {path.name for path in one.iterdir()}


def test_no_workers_are_refused(recipe: RlRecipe, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="workers: got 0"):
        train_sharded(recipe, tmp_path, Workers(0))
