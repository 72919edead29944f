"""`run.py ask` through the real pool: a needle in a long text is found, with its line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import run
from benchmarks.asking.ask import stored_turns
from core.tokens import Tokenizer
from core.types import Sample
from serving.catalogue import find_model
from serving.pool import Pool
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.conftest import ROOT


def needle(length: int, folder: Path) -> tuple[Sample, int]:
    """A needle's sample, its text written to text.txt, and the line that the needle is in."""
    tokenizer = Tokenizer.load(find_model("pocket-memagent").location)
    task = find_task("niah_single_1@depth=0.7")
    sample = task.sample(Coordinates(0, length, 42), Materials(tokenizer, Corpora()))
    text = sample.problem.context.text()
    (folder / "text.txt").write_text(text, encoding="utf-8")
    place = sample.problem.context.locate(sample.evidence[0]).start
    return sample, 1 + text[:place].count("\n")


def check(said: str, sample: Sample, line: int) -> None:
    assert sample.golds[0] in said.splitlines()[0]
    first, last = re.findall(r"text\.txt:(\d+)(?:-(\d+))?", said)[0]
    assert int(first) <= line <= int(last or first)
    assert int(last or first) - int(first) < 100


@pytest.mark.pool
def test_a_needle_in_64k_tokens_is_found_with_its_line(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample, line = needle(65_536, tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["ask", pool.entry.name, "--file", "text.txt", "--endpoint", pool.base_url]
    assert run.main([*words, sample.problem.question]) == 0
    check(capsys.readouterr().out, sample, line)


@pytest.mark.cluster
def test_a_needle_in_1m_tokens_is_found_after_a_kill(tmp_path: Path) -> None:
    """By `run.py ask` alone, which starts the pool of the trained pocket, twice."""
    sample, line = needle(1 << 20, tmp_path)
    command = [sys.executable, str(ROOT / "run.py"), "ask", "pocket-memagent", "--out", "run"]
    command += ["--file", "text.txt", sample.problem.question]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while len(stored_turns(tmp_path / "run")) < 200 and process.poll() is None:
        time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(stored_turns(tmp_path / "run"))
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0
    assert f"; {done:,} are done" in again.stderr
    check(again.stdout, sample, line)
