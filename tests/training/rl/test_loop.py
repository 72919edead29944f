"""The loop as a whole, on random weights: it resumes bit for bit, repeats itself, and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from core.errors import SettingsChanged, UsageError
from core.types import Sample, Sampling, Trajectory
from tasks.corpora.read import Corpora
from tests.training.rl.small import read_state
from tests.training.rl.tiny import by_chance, tiny_recipe, write_tiny_checkpoint
from training.rl.engines.engine import run_rollouts
from training.rl.learner import states
from training.rl.learner.states import Best, read_best
from training.rl.loop import METRICS_FILE, Trainer
from training.rl.metrics import ROLLOUTS_FILE
from training.rl.recipe import Episodes, RlRecipe, Stage, recipe_json
from training.rl.rewards import GruRewards
from training.rl.run import finish, make_trainer
from training.state import claim
from training.tensors import write_tensors

MEASURED = ("rollout_seconds", "update_seconds")


class Killed(Exception):
    """What the tests end a run with."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(autouse=True)
def _rewards_and_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Random weights earn nothing by themselves, so nothing would be learned."""
    monkeypatch.setattr("training.rl.rewards.outcome_reward", by_chance)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trainer_of(recipe: RlRecipe) -> Trainer:
    return make_trainer(recipe, Path(recipe.model), torch.device("cpu"), Corpora(None))


def run(recipe: RlRecipe, out: Path, kill_at: int | None = None) -> dict[str, Tensor]:
    """Trains, or dies when it tells of a step; the state that is left, if any."""

    def progress(step: int, metrics: object) -> None:
        if step == kill_at:
            raise Killed

    claim(out, recipe_json(recipe), resume=True)
    if kill_at is None:
        trainer_of(recipe).run(out)
    else:
        with pytest.raises(Killed):
            trainer_of(recipe).run(out, on_step=progress)
    return read_state(out)


def metrics_of(out: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (out / METRICS_FILE).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in MEASURED} for line in lines]


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("old_logprobs", ["engine", "trainer"])
def test_a_killed_run_goes_on_to_the_unbroken_runs_weights(
    folder: Path, tmp_path: Path, old_logprobs: str
) -> None:
    recipe = tiny_recipe(folder, old_logprobs=old_logprobs, mini_batches=2)
    whole = run(recipe, tmp_path / "whole")
    begun = run(recipe, tmp_path / "broken", kill_at=2)  # step 2 is told but not saved
    assert [line["step"] for line in metrics_of(tmp_path / "broken")] == [0, 1, 2]
    assert begun
    assert not same(begun, whole)
    assert same(run(recipe, tmp_path / "broken"), whole)
    assert metrics_of(tmp_path / "broken") == metrics_of(tmp_path / "whole")
    assert [line["step"] for line in metrics_of(tmp_path / "whole")] == [0, 1, 2, 3]
    validated = ["validation/strict" in line for line in metrics_of(tmp_path / "whole")]
    assert validated == [True, False, True, True]


def test_a_run_killed_before_it_saved_doubles_no_line(folder: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(folder, steps=1)
    assert not run(recipe, tmp_path, kill_at=0)
    run(recipe, tmp_path)
    assert [line["step"] for line in metrics_of(tmp_path)] == [0, 1]


def test_a_finished_run_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(folder, steps=1)
    done = run(recipe, tmp_path)
    lines = (tmp_path / METRICS_FILE).read_text()
    assert same(run(recipe, tmp_path), done)
    assert (tmp_path / METRICS_FILE).read_text() == lines


def test_another_seed_draws_other_questions_and_replies(folder: Path) -> None:
    first, again, other = (trainer_of(tiny_recipe(folder, seed=seed)) for seed in (3, 3, 4))
    rollouts = [one.step(0) for one in (first, again, other)]
    for metrics in rollouts:
        for name in MEASURED:
            del metrics[name]
    assert rollouts[0] == rollouts[1]
    assert rollouts[0] != rollouts[2]


def test_an_update_reaches_the_engine(folder: Path) -> None:
    trainer = trainer_of(tiny_recipe(folder, learning_rate=0.1, warmup_steps=0))
    first = trainer.step(0)
    # Old logprobs are the engine's, so a stale engine shows as drift in the next step.
    assert first["drift"] < 1e-4
    assert trainer.step(1)["drift"] < 1e-4


def test_a_later_stage_draws_its_rollouts_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Sampling] = []

    async def heard(engine: Any, jobs: Any, sampling: Sampling) -> list[Trajectory]:
        drawn.append(sampling)
        return await run_rollouts(engine, jobs, sampling)

    monkeypatch.setattr("training.rl.collect.run_rollouts", heard)
    hot = Stage(start=2, temperature=1.3, top_p=0.9)
    trainer = trainer_of(tiny_recipe(folder, stages=(hot,)))
    for step in (1, 2):
        trainer.step(step)
    assert drawn == [Sampling(temperature=1.0, top_p=1.0), Sampling(temperature=1.3, top_p=0.9)]


def test_dynamic_sampling_asks_further_questions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def varied(sample: Sample, trajectory: Trajectory) -> float:
        return next(draws) if sample.index % 2 else 0.0

    draws = iter(range(1000))
    monkeypatch.setattr("training.rl.rewards.outcome_reward", varied)
    recipe = tiny_recipe(folder, dynamic_sampling=True, max_refills=2)
    # Questions 0 and 1; 2 in place of 0; 3 in place of 2.
    metrics = trainer_of(recipe).step(0)
    assert (metrics["groups"], metrics["dropped_groups"]) == (2, 2)


def test_dynamic_sampling_goes_on_until_the_batch_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question of eight tells its rollouts apart; twice is too few refills, twenty are not."""

    def rare(sample: Sample, trajectory: Trajectory) -> float:
        return next(draws) if sample.index % 8 == 7 else 0.0

    monkeypatch.setattr("training.rl.rewards.outcome_reward", rare)
    for refills, groups in ((2, 0), (20, 2)):
        draws = iter(range(1000))
        recipe = tiny_recipe(folder, dynamic_sampling=True, max_refills=refills)
        metrics = trainer_of(recipe).step(0)
        assert metrics["groups"] == groups
        assert metrics["rate"] == pytest.approx(recipe.rate_at(0) * groups / 2)


def test_groups_told_apart_by_gates_alone_are_learned_from_and_fill_no_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.rl.rewards.outcome_reward", lambda *_: 1.0)
    scores = iter([1.0, -1.0] * 100)

    def gates(outcome: float, trajectory: Trajectory, *_: object) -> GruRewards:
        update = next(scores)
        turns = sum(turn.tag == "memory" for turn in trajectory.turns)
        return GruRewards(outcome, 0.0, 0.0, (update,) * turns)

    monkeypatch.setattr("training.rl.judge.gru_rewards", gates)
    recipe = tiny_recipe(folder, method="gru_mem", dynamic_sampling=True, max_refills=1)
    metrics = trainer_of(recipe).step(0)
    assert (metrics["groups"], metrics["minor_groups"], metrics["dropped_groups"]) == (2, 2, 0)
    assert metrics["rollout_tokens"] > 0
    assert metrics["update/turn_0"] == 0.0


def test_validation_is_greedy_too_where_the_recipe_asks(folder: Path) -> None:
    recipe = tiny_recipe(folder)
    greedy = recipe.validation.model_copy(update={"greedy": True, "temperature": 1.5})
    metrics = trainer_of(recipe.model_copy(update={"validation": greedy})).validate()
    assert {"validation/strict", "validation/greedy/strict"} <= metrics.keys()
    assert "validation/greedy/lenient/niah_single_1" in metrics
    assert "validation/greedy/strict" not in trainer_of(recipe).validate()


def test_a_few_rollouts_of_every_step_are_written_down(folder: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(folder, steps=2, log_rollouts=3)
    run(recipe, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / ROLLOUTS_FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 1, 1, 2, 2, 2]
    first = lines[0]
    assert [turn["tag"] for turn in first["turns"]] == ["memory"] * 2 + ["answer"]
    assert first["reward"] == first["reward/outcome"]
    assert first["golds"]
    run(recipe, tmp_path)  # nothing is left to do, and nothing is written twice
    assert len((tmp_path / ROLLOUTS_FILE).read_text().splitlines()) == 6


def test_rewards_are_told_by_part_task_and_turn(folder: Path) -> None:
    metrics = trainer_of(tiny_recipe(folder, method="gru_mem")).step(0)
    parts = [metrics[f"reward/{part}"] for part in ("outcome", "exit", "format")]
    assert sum(parts) == pytest.approx(metrics["reward"])
    assert metrics["reward/task/niah_single_1"] == pytest.approx(metrics["reward"])
    assert metrics["outcome/niah_single_1"] == metrics["outcome"]
    assert metrics["update/turn_0"] == metrics["reward/update"] == -1.0  # nothing parses


def test_episodes_of_single_turns_are_learned_from_and_resumed(
    folder: Path, tmp_path: Path
) -> None:
    episodes = Episodes(whole=0.5, replies=4)
    recipe = tiny_recipe(folder, groups=4, reply_tokens=12, episodes=episodes)
    metrics = trainer_of(recipe).step(0)
    assert (metrics["groups"], metrics["episode/groups"]) == (4, 2)
    assert metrics["episode/reward"] < 1  # random words are no entries
    assert {"notes/right", "notes/invented", "episode/right/niah_single_1"} <= metrics.keys()
    whole = run(recipe, tmp_path / "whole")
    run(recipe, tmp_path / "broken", kill_at=2)
    assert same(run(recipe, tmp_path / "broken"), whole)


def test_scouts_are_where_episodes_start_and_are_not_learned_from(
    folder: Path, tmp_path: Path
) -> None:
    episodes = Episodes(whole=0, scouts=3, answers=0.5, replies=4)
    recipe = tiny_recipe(folder, groups=4, reply_tokens=12, episodes=episodes)
    metrics = trainer_of(recipe).step(0)
    assert (metrics["groups"], metrics["dropped_groups"], metrics["lost_rollouts"]) == (4, 0, 0)
    assert (metrics["episode/groups"], metrics["answer/groups"]) == (2, 2)
    assert metrics["turns"] > 1  # of the scouts
    fewer = recipe.model_copy(update={"episodes": episodes.model_copy(update={"replies": 2})})
    most = metrics["rollout_tokens"]
    assert most - trainer_of(fewer).step(0)["rollout_tokens"] > 8 * 50  # replies with prompts
    whole = run(recipe, tmp_path / "whole")
    run(recipe, tmp_path / "broken", kill_at=2)
    assert same(run(recipe, tmp_path / "broken"), whole)


def test_a_step_without_anything_to_learn_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.rl.rewards.outcome_reward", lambda *_: 1.0)
    trainer = trainer_of(tiny_recipe(folder, dynamic_sampling=True, max_refills=1))
    before = {k: v.clone() for k, v in trainer.learner.model.state_dict().items()}
    metrics = trainer.step(0)
    assert (metrics["groups"], metrics["dropped_groups"]) == (0, 4)
    assert same(before, dict(trainer.learner.model.state_dict()))


def test_gru_mem_reports_its_gates(folder: Path) -> None:
    recipe = tiny_recipe(folder, method="gru_mem")
    metrics = trainer_of(recipe).step(0)
    assert metrics["exit_early"] + metrics["exit_exact"] + metrics["exit_late"] == 1
    # Random replies never parse: each is wrong, and none says that it knows enough.
    assert (metrics["format"], metrics["exit_late"]) == (0, 1)
    assert (metrics["update_accuracy_present"], metrics["update_accuracy_free"]) == (0, 0)
    assert metrics["exit_deviation_absolute"] >= abs(metrics["exit_deviation"])
    assert metrics["exit_deviation"] >= 0
    assert metrics["gradient_norm"] > 0


def test_another_recipe_in_the_same_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    run(tiny_recipe(folder, steps=1), tmp_path)
    with pytest.raises(SettingsChanged, match="another recipe"):
        run(tiny_recipe(folder, steps=2), tmp_path)


def test_the_newest_states_stay_and_that_of_the_best_validation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.5, 0.25, 0.75, 0.75, 0.5, 0.5])
    monkeypatch.setattr(Trainer, "validate", lambda self: {"validation/strict": next(scores)})
    recipe = tiny_recipe(folder, steps=5, save_every=1, keep_states=2)
    recipe = recipe.model_copy(
        update={"validation": recipe.validation.model_copy(update={"every": 1})}
    )
    run(recipe, tmp_path)
    kept = sorted(path.name for path in (tmp_path / "states").glob("step-*"))
    assert kept == ["step-00000002", "step-00000004", "step-00000005"]
    assert read_best(tmp_path) == Best(2, 0.75)
    finish(recipe, tmp_path)
    last, best = (load_file(at / "model.safetensors") for at in (tmp_path, tmp_path / "best"))
    assert not same(last, best)
    assert (tmp_path / "best" / "tokenizer.json").is_file()


def test_a_state_that_was_not_finished_is_passed_over(folder: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(folder, steps=2, save_every=1)
    run(recipe, tmp_path)
    half = tmp_path / "states" / "step-00000009.partial"
    half.mkdir()
    learner = trainer_of(recipe).learner
    assert learner.load(tmp_path) == 2
    learner.save(tmp_path, 9)
    assert learner.load(tmp_path) == 9


def test_a_run_killed_while_it_saves_goes_on_from_the_state_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(folder)
    whole = run(recipe, tmp_path / "whole")
    saves = count(1)

    def dies(path: Path, tensors: Iterator[tuple[str, Tensor]]) -> None:
        if next(saves) == 2:
            path.write_bytes(b"half")
            raise Killed
        write_tensors(path, tensors)

    monkeypatch.setattr(states, "write_tensors", dies)
    claim(tmp_path / "broken", recipe_json(recipe), resume=True)
    with pytest.raises(Killed):
        trainer_of(recipe).run(tmp_path / "broken")
    assert [path.name for path in (tmp_path / "broken" / "states").glob("step-*")] == [
        "step-00000001"
    ]
    assert same(run(recipe, tmp_path / "broken"), whole)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("state.json", None, "No such file"),
        ("rank-0000.safetensors", None, "No such file"),
        ("state.json", '{"ranks": 0, "tensors": {}}', "ranks: got 0"),
        (
            "state.json",
            '{"ranks": 1, "tensors": {"a": {"shape": [4], "edges": [1, 4]}}}',
            r"edges \[1, 4\], expected ascending ones from 0 to 4",
        ),
    ],
)
def test_a_damaged_state_says_what_to_do(
    folder: Path, tmp_path: Path, name: str, content: str | None, what: str
) -> None:
    recipe = tiny_recipe(folder, steps=1)
    run(recipe, tmp_path)
    damaged = tmp_path / "states" / "step-00000001" / name
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    with pytest.raises(UsageError, match=f"no state to go on from: .*{what}.*Remove step-00000001"):
        trainer_of(recipe).learner.load(tmp_path)
