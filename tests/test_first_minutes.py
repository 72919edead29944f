"""The first minutes: the command line teaches, knows near misses, and lists what there is."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import run
from commands.flags import examples, print_table
from core.names import base_of
from tests.conftest import ROOT


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


PARSERS = {parser.prog: parser for parser in parsers(run._parser())}


def examples_of(parser: argparse.ArgumentParser) -> list[list[str]]:
    """The words behind `python run.py` of each example, as a shell takes them."""
    text = str(parser.epilog or "").partition("examples:\n")[2].partition("\n\n")[0]
    commands = re.split(r"(?:^|;)\s*python run\.py ", text.replace("\\\n", ""), flags=re.MULTILINE)
    words = [shlex.split(command, comments=True) for command in commands[1:]]
    return [found[: found.index("<")] if "<" in found else found for found in words]


def unknown_names(parser: argparse.ArgumentParser, given: argparse.Namespace) -> set[str]:
    """Names of an example that its completion does not know, those in capitals aside."""
    unknown: set[str] = set()
    for action in parser._actions:
        value = getattr(given, action.dest, None)
        if value and hasattr(action, "completer"):
            names = {base_of(name) for name in ([value] if isinstance(value, str) else value)}
            unknown |= {name for name in names if not name.isupper()} - {*action.completer("")}
    return unknown


def test_run_alone_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 0
    said = capsys.readouterr().out
    assert "python run.py sweep pocket" in said
    assert "python run.py report results/pocket" in said


@pytest.mark.parametrize("prog", [*PARSERS])
def test_every_help_ends_with_examples_that_parse(
    prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser, own = PARSERS[prog], prog.split()[1:]
    said = parser.format_help()
    assert "examples:\n  python run.py " in said
    assert max(map(len, said.splitlines())) <= 110
    shown = examples_of(parser)
    assert len(shown) == said.count("python run.py ", said.index("examples:"))
    assert any(words[: len(own)] == own for words in shown)
    for words in shown:
        if "--help" in words:
            with pytest.raises(SystemExit) as stopped:
                run.main(words)
            assert stopped.value.code == 0
            continue
        given = run._parser().parse_args(words)
        if words[: len(own)] == own and not getattr(given, "endpoint", None):
            assert unknown_names(parser, given) == set(), words


def test_an_example_that_rots_is_found() -> None:
    rotten = argparse.ArgumentParser(
        prog="run.py sweep", epilog=examples("sweep pocket --lenght 9")
    )
    (words,) = examples_of(rotten)
    with pytest.raises(SystemExit):
        run._parser().parse_args(words)
    renamed = run._parser().parse_args(["sweep", "packet"])
    assert unknown_names(PARSERS["run.py sweep"], renamed) == {"packet"}


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
