"""An agent and a reward of the user's own in `train rl`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from core.errors import SettingsChanged, UsageError
from tests.training.rl.tiny import tiny_recipe, write_tiny_checkpoint
from training.rl.agent import agent_settings, check_names, with_whole_paths
from training.rl.recipe import Episodes, load_rl_recipe
from training.rl.run import train_rl

AGENT = '''
from dataclasses import dataclass

from core.types import Answer, Message


@dataclass(frozen=True)
class Settings:
    chunk_tokens: int = 100
    words: int = 2
    style: str = "short"


class Skimmer:
    """Reads the beginning of each chunk, and says what it read."""

    def __init__(self, tokenizer, settings: Settings):
        self.tokenizer, self.settings = tokenizer, settings

    async def answer(self, problem, chat):
        notes = []
        for chunk in problem.context.chunks(self.tokenizer, self.settings.chunk_tokens):
            asked = f"{problem.question} {chunk.text[:40]}"
            turn = await chat([Message("user", asked)], max_tokens=self.settings.words, tag="note")
            notes.append(turn.reply)
        return Answer(" ".join(notes), notes[-1])
'''
REWARD = """
def reward(sample, trajectory):
    return sum(sum(turn.reply_ids) for turn in trajectory.turns) % 2


def too_much(sample, trajectory):
    return 1.5


def broken(sample, trajectory):
    return trajectory.answers[0]


POINTS = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, with files of another name each time: one process runs each once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_agents.py").write_text(AGENT)
    (tmp_path / "my_rewards.py").write_text(REWARD)
    write_tiny_checkpoint(tmp_path / "model")
    return tmp_path


OWN = {"method": "my_agents.py:Skimmer@words=3", "reward": "my_rewards.py:reward"}


def test_an_own_agent_learns_by_an_own_reward_and_goes_on_only_while_both_are_as_they_were(
    here: Path,
) -> None:
    recipe = tiny_recipe(here / "model", steps=2, group_size=4, **OWN)
    out = train_rl(recipe, here / "out", device="cpu")
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps] == [0, 1, 2]
    assert all(0 < line["outcome"] < 1 for line in steps[1:])
    assert steps[1]["turns"] > 1
    assert steps[1]["reply_tokens"] <= 3
    assert any(line["gradient_norm"] > 0 for line in steps[1:])
    kept = json.loads((out / "recipe.json").read_text())
    assert set(kept["outside_files"]) == {"my_agents.py:Skimmer", "my_rewards.py:reward"}
    train_rl(recipe, out, device="cpu")
    (here / "my_rewards.py").write_text(REWARD + "\n# changed\n")
    with pytest.raises(SettingsChanged, match="another recipe"):
        train_rl(recipe, out, device="cpu")


def test_a_recipe_file_names_both(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f'extends = "pocket"\nmodel = "{here / "model"}"\nmethod = "my_agents.py:Skimer"\n'
    (here / "mine.toml").write_text(text)
    assert run.main(["train", "rl", "mine.toml", "--out", "out"]) == 2
    assert "did you mean Skimmer" in capsys.readouterr().err
    assert not (here / "out").exists()


def test_settings_come_from_the_name_and_the_recipe(here: Path) -> None:
    recipe = tiny_recipe(here / "model", **OWN)
    assert agent_settings(recipe) == {"chunk_tokens": 128, "words": 3, "style": "short"}
    whole = with_whole_paths(recipe)
    assert whole.method == f"{here / 'my_agents.py'}:Skimmer@words=3"
    assert whole.reward == f"{here / 'my_rewards.py'}:reward"
    assert whole.tasks == recipe.tasks


def test_trained_agents_settings_are_the_papers_or_the_pockets() -> None:
    assert agent_settings(load_rl_recipe("memagent-7b"))["answer_form"] == "boxed"
    assert agent_settings(load_rl_recipe("pocket-memagent"))["answer_form"] == "therefore"
    assert agent_settings(load_rl_recipe("grumem"))["answer_layout"] == "paper"
    pocket = agent_settings(load_rl_recipe("pocket-grumem"))
    assert (pocket["answer_layout"], pocket["reply_tokens"]) == ("paper", 192)


@pytest.mark.parametrize(
    ("field", "name", "message"),
    [
        ("method", "memagnet", "did you mean memagent"),
        ("method", "memagent@answer_from=boxed", "did you mean answer_form"),
        ("method", "memagent@chunk_tokens=64", "give chunk_tokens as a field of the recipe"),
        ("method", "gru_mem@exit_gate=false", "trained with its exit gate on"),
        ("method", "none.py:Agent", "there is no file none.py"),
        ("method", "my_agents.py:Settings", "expected a class with"),
        ("method", "my_agents.py:Skimmer@words=many", "words: got 'many'"),
        ("reward", "my_rewards.py:rewards", "did you mean reward"),
        ("reward", "my_rewards.py:POINTS", "of a callable"),
        ("reward", "reward", "expected FILE.py:NAME"),
    ],
)
def test_what_is_not_there_is_told_before_anything_begins(
    here: Path, field: str, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_names(tiny_recipe(here / "model", **{field: name}))


@pytest.mark.parametrize(
    ("name", "message"),
    [("too_much", "got 1.5 for .*, expected 0 to 1"), ("broken", "no attribute 'answers'")],
)
def test_a_reward_that_gives_no_share_is_told(here: Path, name: str, message: str) -> None:
    recipe = tiny_recipe(here / "model", reward=f"my_rewards.py:{name}", steps=1)
    with pytest.raises(UsageError, match=message):
        train_rl(recipe, here / "out", device="cpu")


def test_episodes_are_of_agents_whose_memories_can_be_read(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, method="full_context", episodes=Episodes())
    with pytest.raises(UsageError, match="what full_context notes is not known; expected memagent"):
        check_names(recipe)
