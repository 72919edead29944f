"""The first minutes: the command line teaches, knows near misses, and lists what there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import run
from commands.flags import print_table
from tests.conftest import ROOT

COMMANDS = ("sweep", "plan", "doctor", "status", "report", "exhibit", "serve", "models", "measure")
MORE = ("export", "score", "rescore", "tasks", "data", "suites", "train", "view")


def test_run_alone_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 0
    said = capsys.readouterr().out
    assert "python run.py sweep pocket" in said
    assert "python run.py report results/pocket" in said


@pytest.mark.parametrize("command", [*COMMANDS, *MORE])
def test_every_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main([command, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert f"examples:\n  python run.py {command}" in said
    assert max(map(len, said.splitlines())) <= 110


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["swep", "pocket"], "did you mean sweep?"),
        (["tasks", "shw"], "did you mean show?"),
        (["sweep", "pocket", "--lenghts", "8192"], "for --lenghts, did you mean --lengths"),
        (["tasks", "show", "vt", "--length", "9", "--indx=3"], "did you mean --index"),
        (["tasks", "export", "vt", "--length", "9", "--form", "rular"], "did you mean ruler?"),
    ],
)
def test_near_misses_of_words_and_flags_are_told(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(words)
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sweep", "pocket", "--models", "pocket-bas"], "did you mean pocket-base"),
        (["sweep", "pocket", "--methods", "memagnt"], "did you mean memagent"),
        (["sweep", "pocket", "--methods", "memagent@chunk_token=5"], "did you mean chunk_tokens"),
        (["sweep", "pocket", "--tasks", "niah_singel_1"], "did you mean niah_single_1"),
        (["plan", "pocket", "--gpu", "H10"], "did you mean"),
        (["serve", "pocket-bas"], "did you mean pocket-base"),
        (["exhibit", "memagent-tabel-2"], "did you mean memagent-table-2"),
        (["train", "rl", "pocket-memagnt"], "did you mean pocket-memagent"),
        (["data", "fetch", "hotpot"], "did you mean hotpotqa"),
    ],
)
def test_near_misses_of_names_are_told(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(words) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "key", "column"),
    [
        (["tasks"], "niah_single_1", "task", "golds"),
        (["tasks", "list"], "vt", "task", "summary"),
        (["models"], "pocket-base", "model", "source"),
        (["suites"], "pocket", "suite", "summary"),
    ],
)
def test_lists_are_aligned_tables_and_json(
    words: list[str], name: str, key: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(words) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.startswith(key)
    begins = heads.index(column)
    assert {line[begins - 1] for line in lines} == {" "}
    assert " " not in {line[begins] for line in lines}
    assert "\033" not in heads
    assert run.main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert name in [row[key] for row in rows]
    assert len(rows) == len(lines)


def test_a_table_puts_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "a", "count": 5}, {"name": "long", "count": 12345}])
    assert capsys.readouterr().out == "name   count\na          5\nlong  12,345\n"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("run.py swe", "sweep "),
        ("run.py sweep pocket_ab", "pocket_ablation "),
        ("run.py serve pocket-l", "pocket-long "),
        ("run.py tasks show fiction_3", "fiction_3hop "),
        ("run.py sweep pocket --len", "--lengths "),
    ],
)
def test_the_shell_completes_commands_flags_and_names(line: str, word: str, tmp_path: Path) -> None:
    out = tmp_path / "completions"
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "_ARGCOMPLETE_IFS": "\013",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "0",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run([sys.executable, ROOT / "run.py"], env=environment, timeout=60, check=False)
    assert word in out.read_text().split("\013")
