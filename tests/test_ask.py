"""`run.py ask` as a new user meets it: files of every kind, one question, an answer with the lines
that it comes from, and a run that can be stopped, gone on with and opened."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import run
from benchmarks.store import Store
from core.tokens import Tokenizer
from reports.causes.diagnosed import Runs
from reports.explorer.page import remakers_of
from reports.explorer.turns import sample_turns
from tests.conftest import ROOT
from tests.reader import ReaderServer, reader

QUESTION = "What is the special number of Oslo?"
NEEDLE = "The special number of Oslo is: 1234567."


@pytest.fixture
def server(tokenizer: Tokenizer) -> Iterator[ReaderServer]:
    with reader(tokenizer) as server:
        server.delay_s = 0.0
        yield server


@pytest.fixture
def flags(
    tmp_path: Path, tokenizer: Tokenizer, server: ReaderServer, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Where to ask, with small chunks; results go below the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    where = ["--endpoint", server.url, "--tokenizer", str(tmp_path / "tok")]
    return [*where, "--method", "memagent@chunk_tokens=400"]


def haystack(lines: int = 300, needle: int = 200) -> str:
    """Lines of which one, counted from 1, holds the answer."""
    every = [f"The grass is green in row {i}." for i in range(1, lines + 1)]
    every[needle - 1] = NEEDLE
    return "\n".join(every) + "\n"


def ask(*words: str) -> int:
    return run.main(["ask", "reader", *words])


def the_run(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "results" / "ask").iterdir()
    return found


def test_the_answer_comes_with_the_lines_that_hold_it(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paper.txt").write_text(haystack())
    (tmp_path / "notes.md").write_text("# Notes\nNothing.\n")
    assert ask("--file", "paper.txt", "--file", "notes.md", *flags, QUESTION) == 0
    out, err = capsys.readouterr()
    answer, _, _, source, *_ = out.splitlines()
    assert answer == "is: 1234567"
    first, last = re.findall(r"paper\.txt:(\d+)-(\d+)", source)[0]
    assert int(first) <= 200 <= int(last)
    assert int(last) - int(first) < 60
    assert "1234567" in source
    assert re.search(r"2 documents, [\d,]+ tokens, at most \d+ turns by memagent", err)


def test_its_run_is_found_again_and_opened_by_report(
    tmp_path: Path,
    flags: list[str],
    server: ReaderServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "ask", *flags])  # where the run finds its tokenizer
    (tmp_path / "paper.txt").write_text(haystack())
    assert ask("--file", "paper.txt", *flags, QUESTION) == 0
    asked, first = len(server.asked), capsys.readouterr().out
    assert ask("--file", "paper.txt", *flags, QUESTION) == 0
    assert len(server.asked) == asked
    assert capsys.readouterr().out == first
    assert ask("--file", "paper.txt", *flags, "Another question?") == 0
    assert len(list((tmp_path / "results" / "ask").iterdir())) == 2
    folder = re.findall(r"python run\.py report (\S+)", first)[0]
    assert run.main(["report", folder]) == 0
    page = (Path(folder) / "report" / "index.html").read_text()
    assert QUESTION in page
    assert "nothing is scored" in page
    runs = Runs([Path(folder)])
    (one,) = runs.diagnosed([0])
    shown = sample_turns(one, remakers_of(runs, None)[0])
    assert shown["gone"] is None
    assert "The grass is green in row 1." in shown["turns"][0]["text"]
    assert str(one.diagnosis.cause or "") == ""
    with Store.read(Path(folder)) as store:
        (row,) = store.sample_rows()
    assert (row["golds"], row["scores"], row["status"]) == ([], {}, "ok")


def test_the_memory_is_shown_as_it_changes(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paper.txt").write_text(haystack())
    assert ask("--file", "paper.txt", "--show-memory", *flags, QUESTION) == 0
    shown = re.findall(r"memory after turn (\d+) of (\d+):\n    (.*)", capsys.readouterr().err)
    assert [memory for _, _, memory in shown] == ["No previous memory", "is: 1234567."]
    assert int(shown[1][0]) > 2


@pytest.mark.parametrize(
    "method", ["full_context", "retrieval", "sliding_window", "map_reduce@chunk_tokens=400"]
)
def test_every_method_can_be_asked(
    method: str, tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paper.txt").write_text(haystack())
    settings = ",reply_tokens=99" if "map" in method else "@input_tokens=1000"
    if method == "retrieval":
        settings += ",chunk_tokens=100"
    assert ask("--file", "paper.txt", *flags, "--method", method + settings, QUESTION) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  paper\.txt:\d+-\d+", out, re.MULTILINE)
    if method == "sliding_window":
        assert "tokens of the text were not read" in out
    if method == "retrieval":
        first, last = re.findall(r"paper\.txt:(\d+)-(\d+)", out)[0]
        assert int(first) <= 200 <= int(last)


def test_standard_input_and_folders_are_read(
    tmp_path: Path,
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "old.txt").write_bytes(f"caf\xe9\n{haystack(30, 7)}".encode("latin-1"))
    (tmp_path / "papers" / "scan.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "input").write_text("From a pipe.\n")
    with (tmp_path / "input").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert ask("--file", "papers", "--file", "-", *flags, QUESTION) == 0
    out, err = capsys.readouterr()
    assert re.search(r"papers/old\.txt:1-\d+", out)
    assert "left out: scan.pdf" in err
    assert "papers/old.txt: not UTF-8, read as Latin-1" in err
    assert "2 documents" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"paper\.txt: no such file"),
        (b"", r"paper\.txt is empty"),
        (b"%PDF-1.4", "pdftotext"),
        (b"\x00\x01\x02", "is no text"),
    ],
)
def test_what_cannot_be_read_costs_no_request(
    content: bytes | None,
    message: str,
    tmp_path: Path,
    flags: list[str],
    server: ReaderServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / "paper.txt").write_bytes(content)
    assert ask("--file", "paper.txt", *flags, QUESTION) == 2
    assert re.search(f"error: .*{message}", capsys.readouterr().err)
    assert server.asked == []
    assert not (tmp_path / "results").exists()


def test_what_is_missing_is_told(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(["ask"])
    assert stopped.value.code == 2
    assert "are required: MODEL, QUESTION" in capsys.readouterr().err
    assert ask(*flags, QUESTION) == 2
    assert "nothing to read: give --file FILE" in capsys.readouterr().err
    (tmp_path / "paper.txt").write_text(haystack())
    assert ask("--file", "paper.txt", *flags, " ") == 2
    assert "the question is empty" in capsys.readouterr().err
    assert ask("--file", "paper.txt", *flags, "--method", "memgent", QUESTION) == 2
    assert "did you mean memagent" in capsys.readouterr().err


def test_a_changed_file_is_another_run_and_refused_for_the_same_out(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paper = tmp_path / "paper.txt"
    paper.write_text(haystack())
    assert ask("--file", "paper.txt", "--out", "mine", *flags, QUESTION) == 0
    paper.write_text(haystack(needle=9))
    assert ask("--file", "paper.txt", "--out", "mine", *flags, QUESTION) == 2
    assert "holds other documents" in capsys.readouterr().err
    paper.write_text(haystack())
    assert ask("--file", "paper.txt", "--out", "mine", *flags, "Who?") == 2
    assert "other settings" in capsys.readouterr().err


def test_control_characters_of_a_model_do_not_reach_the_terminal(
    tmp_path: Path, flags: list[str], server: ReaderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paper.txt").write_text("is: 1234567.\n")
    server.wrap = "\x1b[2Jthe answer is {}"
    assert ask("--file", "paper.txt", "--show-memory", *flags, QUESTION) == 0
    out, err = capsys.readouterr()
    assert "\x1b[2J" not in out + err


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_question_goes_on_where_it_was(
    kill: signal.Signals, tmp_path: Path, flags: list[str], server: ReaderServer
) -> None:
    (tmp_path / "paper.txt").write_text(haystack(2000, 1700))
    server.delay_s = 0.05
    command = [sys.executable, str(ROOT / "run.py"), "ask", "reader", "--file", "paper.txt"]
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen([*command, *flags, QUESTION], stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, usual)
    deadline = time.monotonic() + 60
    while len(server.asked) < 10 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(kill)
    said = process.communicate(timeout=30)[1]
    if kill == signal.SIGINT:
        assert process.returncode == 1
        assert "give the same command again to go on" in said
    with Store.read(the_run(tmp_path)) as store:
        known = {row["request"] for row in store.turn_rows()}
    assert len(known) >= 9
    before = len(server.asked)
    server.delay_s = 0.0
    again = subprocess.run([*command, *flags, QUESTION], capture_output=True, text=True, timeout=60)
    assert again.returncode == 0
    assert not known & set(server.asked[before:])
    assert f"; {len(known)} are done" in again.stderr
    assert again.stdout.startswith("is: 1234567\n")
    first, last = re.findall(r"paper\.txt:(\d+)-(\d+)", again.stdout)[0]
    assert int(first) <= 1700 <= int(last)
