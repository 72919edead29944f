"""The command line as a user meets it: help, exit codes, files out, errors on one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from benchmarks.store import Cell, Store
from commands.flags import names
from core.types import Answer, Failure, Turn
from reports.run.exported import EXPORTED
from tests.conftest import make_sample

COMMANDS = [
    "sweep",
    "report",
    "serve",
    "export",
    "score",
    "tasks",
    "suites",
    "models",
    "train",
    "data",
]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    with Store.write(folder) as store:
        store.set_up({"seed": 1}, [Cell(0, "niah_single_1", 1024, "memagent", "pocket", 2)])
        store.add_turn((0, 0, 0), 0, "h", Turn("answer", (), "a\u2028b", "stop", 10, 2, 0.5))
        scores = {"published": {"sub_em": 1.0}, "strict": {"sub_em": 1.0}}
        store.finish_sample(0, make_sample(["x"]), Answer("a\u2028b", "b"), scores)
        store.finish_sample(0, make_sample(["x"], index=1), Failure("timeout", "late"), {})
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main([command, "--help"])
    assert stopped.value.code == 0
    assert f"run.py {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["swep"],
        ["sweep"],
        ["sweep", "pocket", "--samples", "0"],
        ["sweep", "pocket", "--lengths", "8K"],
        ["sweep", "pocket", "--models", ","],
        ["serve", "pocket-base", "--port", "x"],
        ["data"],
        ["data", "fetch", "--documents", "50,x"],
        ["tasks", "show", "vt"],
        ["tasks", "show", "vt", "--length", "-1"],
        ["tasks", "export", "vt", "--length", "2000", "--samples", "2", "--form", "csv"],
    ],
)
def test_wrong_words_exit_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(words)
    assert stopped.value.code == 2
    assert "usage: run.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "poket"], "did you mean pocket"),
        (["report", "nowhere"], "no run.sqlite"),
        (["export", "nowhere", "--out", "x.jsonl"], "no run.sqlite"),
        (["score", "nowhere.jsonl", "--out", "x.jsonl"], "cannot be read"),
        (["serve", "nobody"], "nobody"),
        (["data", "status", "--data", "nowhere"], "no such folder"),
        (["data", "fetch", "essay"], "there are: hotpotqa"),
        (["tasks", "show", "vtt", "--length", "2000"], "task 'vtt' is not known; did you mean vt?"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_samples_are_exported_a_line_each(run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "samples.jsonl"
    assert run.main(["export", str(run_dir), "--out", str(out)]) == 0
    good, failed = map(json.loads, out.read_text(encoding="utf-8").split("\n")[:-1])
    assert list(good) == list(EXPORTED)
    assert (good["reply"], good["status"], good["turns"]) == ("a\u2028b", "ok", 1)
    assert good["scores"]["strict"]["sub_em"] == 1.0
    assert (failed["status"], failed["error_kind"]) == ("error", "timeout")


def test_turns_are_exported_a_line_each(run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    assert run.main(["export", str(run_dir), "--turns", "--out", str(out)]) == 0
    (turn,) = map(json.loads, out.read_text(encoding="utf-8").split("\n")[:-1])
    assert (turn["tag"], turn["reply"], turn["completion_tokens"]) == ("answer", "a\u2028b", 2)


def test_replies_from_anywhere_are_scored(tmp_path: Path) -> None:
    replies, out = tmp_path / "replies.jsonl", tmp_path / "scored.jsonl"
    record = {"kind": "all_of", "reply": "the answer is 1 and 2", "golds": ["1", "2"], "x": 1}
    replies.write_text(json.dumps(record) + "\n")
    assert run.main(["score", str(replies), "--out", str(out)]) == 0
    scored = json.loads(out.read_text())
    assert scored["published"] == {"sub_em": 1.0}
    assert scored["strict"]["sub_em"] == 1.0
    assert (scored["x"], scored["extracted"]) == (1, "1 and 2")


def test_a_bad_record_names_its_line_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replies, out = tmp_path / "replies.jsonl", tmp_path / "scored.jsonl"
    good = json.dumps({"kind": "all_of", "reply": "", "golds": ["1"]})
    replies.write_text(good + '\n{"kind": "all_of"}\n')
    assert run.main(["score", str(replies), "--out", str(out)]) == 2
    assert "line 2" in capsys.readouterr().err
    assert not list(tmp_path.glob("scored*"))


def test_lists_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for command, name in (
        ("tasks", "niah_single_1"),
        ("suites", "pocket"),
        ("models", "pocket-base"),
    ):
        assert run.main([command]) == 0
        assert name in capsys.readouterr().out


def test_names_keep_the_commas_of_their_own_settings() -> None:
    found = names("vt@hops=2,form=ruler, memagent,gru_mem@exit_gate=false,chunk_tokens=512")
    assert found == ("vt@hops=2,form=ruler", "memagent", "gru_mem@exit_gate=false,chunk_tokens=512")
