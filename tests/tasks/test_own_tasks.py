"""A task from outside the project: an object in a user's file, named with settings like any."""

from __future__ import annotations

from pathlib import Path

import pytest

import run
from core.errors import UsageError
from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

OWN = '''
from dataclasses import dataclass
from typing import ClassVar

from core.context import Context
from core.types import Problem, Sample
from tasks.scoring import ALL
from tasks.task import parameters_of, sample_id, sample_rng


@dataclass(frozen=True, slots=True)
class Secret:
    """A word among others."""

    name: str = "secret"
    summary: str = "the one word that is not blue"
    generation_tokens: int = 8
    word: str = "red"
    source: ClassVar = "own"
    match: ClassVar = "all"
    scorer: ClassVar = ALL

    @property
    def parameters(self):
        return parameters_of(self)

    def sample(self, at, materials):
        words = ["blue"] * (at.length // 4)
        words.insert(sample_rng(self, at).randrange(len(words)), self.word)
        problem = Problem(Context(words, " "), "Which word is not blue?")
        name = sample_id(self, at, {"tokenizer": materials.tokenizer.fingerprint})
        return Sample(name, self.name, at.index, problem, (self.word,), "all")


TASK = Secret()
NUMBER = 3
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "my_tasks.py"
    path.write_text(OWN)
    return f"{path}:TASK"


def test_a_task_of_a_users_file_is_found_by_its_name(own: str, byte_tokenizer: Tokenizer) -> None:
    task = find_task(f"{own}@word=green")
    sample = task.sample(Coordinates(0, 100, 1), Materials(byte_tokenizer, Corpora()))
    assert sample.golds == ("green",)
    assert sample.problem.context.text().count("green") == 1
    assert task.parameters["word"] == "green"


def test_an_own_task_is_shown_and_written(
    own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["tasks", "show", own, "--length", "100"]) == 0
    assert "the one word that is not blue" in capsys.readouterr().out
    out = tmp_path / "out.json"
    words = ["tasks", "export", own, "--length", "100", "--samples", "2", "--form", "memagent"]
    assert run.main([*words, "--out", str(out)]) == 0
    assert out.read_text().count('"answers": ["red"]') == 2


def test_an_own_name_that_is_no_task_is_told(own: str) -> None:
    for name, told in (
        (own.replace("TASK", "NUMBER"), "expected an object with all that"),
        (own.replace("TASK", "Secret"), "expected an object with all that"),
        (own.replace("TASK", "TSK"), "'TSK' is not known; did you mean TASK"),
        (own.replace("my_", "no_"), "there is no file"),
        (f"{own}@colour=red", "setting 'colour' is not known; there are: generation_tokens, word"),
    ):
        with pytest.raises(UsageError, match=told):
            find_task(name)
