"""A suite, a task with its scorer, a method and a model of one's own, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from benchmarks.ledger import ledger
from benchmarks.store import Store
from core.files import file_hash
from core.tokens import Tokenizer
from tests.benchmarks.test_kill import ReaderServer
from tests.benchmarks.test_kill import server as server
from tests.conftest import ROOT

MY_AGENT = Path(__file__).with_name("my_agent.py")

MY_TASKS = """
from dataclasses import dataclass
from typing import ClassVar

from tasks.ruler.niah import Niah


class Judge:
    metric = "graded"

    async def __call__(self, answer, sample):
        found = float(sample.golds[0] in answer.reply)
        return {"strict": {"graded": 0.5 * found}, "published": {"graded": found}}


@dataclass(frozen=True)
class Graded(Niah):
    scorer: ClassVar[Judge] = Judge()


TASK = Graded("graded", "one number, half a point for it", "noise")
"""

MY_SUITE = """
summary = "mine"
models = ["reader", "reader@temperature=0"]
methods = ["{agent}:MyAgent@chunk_tokens=256"]
[method_settings."{agent}:MyAgent"]
reply_tokens = 32
[[cells]]
tasks = ["{tasks}:TASK"]
lengths = [2048]
samples = 2
"""

MY_MODELS = """
[models.reader]
source = "./weights"
window_tokens = 4096
methods."{agent}:MyAgent" = {{ chunk_tokens = 999, reply_tokens = 999 }}
"""


@pytest.fixture
def command(tmp_path: Path, tokenizer: Tokenizer, server: ReaderServer) -> list[str]:
    tasks, suite, models = (tmp_path / f for f in ("my_tasks.py", "my_suite.toml", "models.toml"))
    tasks.write_text(MY_TASKS)
    suite.write_text(MY_SUITE.format(agent=MY_AGENT, tasks=tasks))
    models.write_text(MY_MODELS.format(agent=MY_AGENT))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    flags = ["--endpoint", server.url, "--tokenizer", str(tmp_path / "weights")]
    return ["sweep", str(suite), *flags, "--catalogue", str(models), "--out", str(tmp_path / "run")]


def test_all_of_it_may_be_ones_own(command: list[str], tmp_path: Path) -> None:
    assert run.main(command) == 0
    with Store.read(tmp_path / "run") as store:
        rows = ledger(store)
        settings = store.settings() or {}
    assert [row.cell.model for row in rows] == ["reader", "reader@temperature=0"]
    assert [row.scores for row in rows] == [{"strict": 0.5, "published": 1.0}] * 2
    (task,) = settings["tasks"].values()
    assert task["metric"] == "graded"
    brought = (MY_AGENT, tmp_path / "my_tasks.py", tmp_path / "models.toml")
    assert settings["outside"] == {str(file): file_hash(file) for file in brought}
    methods = settings["models"]["reader"]["methods"]
    assert methods == {
        f"{MY_AGENT}:MyAgent@chunk_tokens=256": {"chunk_tokens": 256, "reply_tokens": 32}
    }
    assert settings["methods"][f"{MY_AGENT}:MyAgent"]["label"] == "MyAgent"


def test_a_run_is_not_gone_on_with_after_ones_own_file_changed(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(command) == 0
    models = tmp_path / "models.toml"
    models.write_text(models.read_text() + "# a word more\n")
    assert run.main(command) == 2
    assert str(models) in capsys.readouterr().err


def test_readme_prints_this_agent() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = readme.partition("```python\n")[2].partition("```")[0]
    agent = MY_AGENT.read_text(encoding="utf-8")
    assert printed == agent
    assert len(agent.splitlines()) < 30
