"""`run.py train rl`, `train plot`, `train clean`: what they print, write and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

import run
from commands.train.rl import preset_summary
from commands.train.steps import duration, step_line, validation_line
from core.types import Message, Sampling, Turn
from serving.catalogue import find_model
from tests.conftest import ROOT
from tests.tasks.conftest import hotpot_item
from tests.training.rl.tiny import tiny_recipe, write_tiny_checkpoint
from training.rl.recipe import rl_preset_names

STEP = {
    "reward": 0.5,
    "outcome/vt": 0.25,
    "outcome/niah_single_1": 0.75,
    "dropped_groups": 0,
    "rollout_tokens": 64_000,
    "rollout_seconds": 2.0,
    "entropy": 1.25,
    "kl": 0.002,
    "clip_fraction": 0.011,
    "update_tokens": 60_000,
    "update_seconds": 3.0,
}


def test_a_step_is_one_line() -> None:
    assert step_line(7, 100, STEP, 300) == (
        "step   7/100  reward  0.500  right vt 0.25 niah_single_1 0.75  entropy 1.250  KL 0.0020"
        "  clip 1.1%  rollouts 32K  update 20K tokens/s  left 5 min"
    )


def test_gates_and_dropped_groups_are_told() -> None:
    gates = {"update_accuracy_present": 0.5, "update_accuracy_free": 1.0, "exit_exact": 0.25}
    line = step_line(1, 2, STEP | gates | {"dropped_groups": 3}, 1)
    assert "gates 0.50/1.00  exits exact 0.25" in line
    assert "dropped 3" in line


def test_a_step_without_an_update_says_so() -> None:
    metrics = {k: v for k, v in STEP.items() if not k.startswith(("entropy", "update", "kl"))}
    assert "no update" in step_line(1, 2, metrics, 1)


def test_a_validation_is_one_line_and_nothing_otherwise() -> None:
    assert validation_line(STEP) == ""
    found = {"validation/strict": 0.5, "validation/lenient": 0.6, "validation/strict/vt": 0.5}
    assert validation_line(found) == (
        "validation 0.500 strict, 0.600 lenient; strict by task: vt 0.50"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(89, "89 s"), (91, "2 min"), (5_399, "1 h 30 min"), (7_300, "2 h 02 min")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_every_preset_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["train", "rl", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == rl_preset_names()
    assert all(len(preset_summary(name)) > 20 for name in rl_preset_names())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rl"], "no recipe given"),
        (["rl", "nobody"], "not known"),
        (["rl", "pocket", "--ray-address", "here:1"], "--workers"),
        (["plot", "nowhere"], "cannot be read"),
        (["plot", "a", "b"], "--out DIR"),
        (["clean", "--data", "nowhere", "--models", "a", "--out", "x"], "no such folder"),
        (["clean", "--data", ".", "--models", ",", "--out", "x"], "--models"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["train", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("flag", ["--steps=0", "--seed=-1", "--workers=0", "--workers=two"])
def test_numbers_are_checked_before_anything_starts(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(["train", "rl", "pocket", flag])
    assert stopped.value.code == 2
    name, _, value = flag.partition("=")
    assert f"{name}: '{value}' is not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "workers", [[], pytest.param(["--workers", "1"], marks=pytest.mark.slow)], ids=" ".join
)
def test_a_run_ends_with_a_checkpoint_that_can_be_served_and_plotted(
    workers: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # In a process of its own: Ray reads its settings once, at whichever test asks it first.
    model, out = write_tiny_checkpoint(tmp_path / "model"), tmp_path / "out"
    fields = tiny_recipe(tmp_path / "elsewhere").model_dump(mode="json", exclude_none=True)
    recipe = tmp_path / "mine.toml"
    recipe.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in fields.items()))
    command = ["train", "rl", str(recipe), "--out", str(out), "--device", "cpu"]
    flags = ["--model", str(model), "--steps", "1", "--seed", "5"]
    program = [sys.executable, str(ROOT / "run.py")]
    ran = subprocess.run([*program, *command, *workers, *flags], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout
    assert "step 1/1  reward" in printed
    assert str(out / "curves.png") in printed
    stored = json.loads((out / "recipe.json").read_text())
    assert (stored["steps"], stored["seed"], stored["model"]) == (1, 5, str(model))
    assert (out / "curves.png").is_file()
    # What `run.py sweep --checkpoint pocket=OUT` serves.
    assert Path(find_model("pocket-base").with_weights(out).location) == out.resolve()
    assert run.main([*command, "--model", str(model)]) == 2
    assert "another recipe" in capsys.readouterr().err


def _toml(value: object) -> str:
    """JSON is TOML, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


class FakeClient:
    """A served model that knows one question by heart."""

    def __init__(self, knows: str) -> None:
        self.knows = knows

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        pass

    async def check(self, model: str) -> None:
        pass

    async def turn(
        self, model: str, messages: Sequence[Message], *, max_tokens: int, sampling: Sampling,
        tag: str,
    ) -> Turn:  # fmt: skip
        assert (sampling.temperature, sampling.top_p) == (1.0, 0.7)
        known = messages[0].content.startswith(self.knows)
        reply = "\\boxed{Arden Belmont Corioli}" if known else "who knows"
        return Turn(tag, tuple(messages), reply, "stop", 1, 1, 0.0)


@pytest.mark.parametrize(
    ("split", "file"),
    [
        ([], "hotpot_train_v1.1.json"),
        (["--split", "dev"], "hotpot_dev_distractor_v1.json"),
    ],
    ids=["train", "dev"],
)
def test_cleaning_counts_by_model_and_writes_what_is_kept(
    split: list[str],
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = [{**hotpot_item(n), "question": f"Q{n}?", "answer": "Belmont"} for n in range(4)]
    (tmp_path / file).write_text(json.dumps(items))

    @contextmanager
    def served(name: str, arguments: Namespace) -> Iterator[FakeClient]:
        yield FakeClient({"a": "Q1?", "b": "Q3?"}[name])

    monkeypatch.setattr("commands.train.clean._client", served)
    out = tmp_path / "kept.json"
    words = ["--data", str(tmp_path), "--models", "a, b", "--out", str(out)]
    assert run.main(["train", "clean", *split, *words]) == 0
    assert json.loads(out.read_text())["kept"] == [0, 2]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed == [
        ["questions", "4"],
        ["answered", "1", "by", "a"],
        ["answered", "1", "by", "b"],
        ["undecided", "0"],
        ["kept", "2", str(out)],
    ]
