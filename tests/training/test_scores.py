import json
import math
from pathlib import Path

import pytest

import run
from agents.memagent import MemAgent, MemAgentSettings
from core.tokens import Tokenizer
from core.types import Sampling
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.tiny_model import write_tiny_model
from tests.training.rl.tiny import write_tiny_checkpoint
from training.rl.episodes.notes import notebook_of
from training.scores import ScoreRequest, TaskScore, measure, reader, scores_json


def test_a_checkpoint_is_measured_through_task_and_method(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, window_tokens=2048)
    heard: list[TaskScore] = []
    (found,) = measure(
        tmp_path,
        {"memagent": lambda tokenizer: MemAgent(tokenizer, MemAgentSettings(200, 8))},
        [ScoreRequest("niah_single_1", "memagent", 1024, 3)],
        seed=0,
        tell=heard.append,
    )
    assert heard == [found]
    assert (found.samples, found.whole, found.failures) == (3, 0, 0)
    assert found.turns > 3
    assert found.low == 0 < found.high
    told = json.loads(scores_json([found], {"seed": 0}))
    assert told["cells"][0]["task"] == "niah_single_1"
    assert found.notes == {}


def test_what_score_follows_from_the_errors_of_a_turn(tmp_path: Path) -> None:
    tokens = Tokenizer.load(write_tiny_checkpoint(tmp_path / "model"))
    materials = Materials(tokens, Corpora())

    def follows(task: str, length: int, index: int = 0, **rates: float) -> tuple[float, float]:
        sample = find_task(task).sample(Coordinates(index, length, 1), materials)
        book = notebook_of(sample, tokens, 200)
        assert book is not None
        told = reader([(sample, book)], tokens, 200, rates)
        return told["reachable"], told["follows"]

    reachable, held = follows("niah_multivalue_noise", 2000, stored=1.0, kept=1.0)
    assert reachable == held in (0.5, 0.75, 1.0)  # a needle on a chunk's edge is lost
    assert follows("niah_multivalue_noise", 2000, stored=0.5) == (reachable, held / 2)
    decay = [follows("vt", length, kept=0.98)[1] for length in (1000, 4000, 16000)]
    assert decay[0] > decay[1] > decay[2] > 0
    told = {follows("fiction_2hop", 2000, index, stored=0.5) for index in range(8)}
    answered = {held for reachable, held in told if reachable}
    assert answered <= {0.5**facts for facts in range(1, 6)}  # all of them, or no answer
    assert 0.25 in answered
    assert (0.0, 0.0) in told


def test_what_is_drawn_colder_has_less_entropy(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model")
    nats = []
    for temperature in (0.1, 0.5, 1.0):
        (found,) = measure(
            folder,
            {"memagent": lambda tokenizer: MemAgent(tokenizer, MemAgentSettings(200, 32))},
            [ScoreRequest("niah_single_1", "memagent", 600, 3)],
            seed=0,
            sampling=Sampling(temperature=temperature, top_p=1.0),
        )
        nats.append(found.nats)
    assert 0 < nats[0] < nats[1] < nats[2] < math.log(20_000)


def test_the_command_writes_scores_of_the_methods_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model")
    command = ["train", "scores", "pocket-base", "--checkpoint", str(folder), "--samples", "2"]
    methods = "memagent@reply_tokens=8,gru_mem@exit_gate=false,reply_tokens=8"
    flags = ["--methods", methods, "--tasks", "niah_single_1", "--lengths", "600,700"]
    assert run.main([*command, *flags]) == 0
    assert capsys.readouterr().out.count("strict") == 4
    told = json.loads((folder / "scores.json").read_text())
    assert [(c["method"].partition("@")[0], c["length"]) for c in told["cells"]] == [
        ("memagent", 600), ("memagent", 700), ("gru_mem", 600), ("gru_mem", 700)
    ]  # fmt: skip
    assert told["sampling"]["temperature"] == 0.7
    for cell in told["cells"]:
        assert cell["notes"]["right"] <= 1
        assert 0 <= cell["notes"]["follows"] <= cell["notes"]["reachable"] <= 1
