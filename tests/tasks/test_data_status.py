"""What `run.py data status` says of a folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import run
from tasks.corpora.read import Corpora, read_hotpotqa
from tasks.corpora.status import status
from tests.tasks.conftest import hotpot_item
from tests.tasks.shelf import HOTPOTQA, Shelf, get, hub_row
from tests.tasks.shelf import few_questions as few_questions
from tests.tasks.shelf import shelf as shelf


def test_status_says_what_is_there_and_what_it_serves(
    shelf: Shelf, tmp_path: Path, few_questions: None
) -> None:
    out = tmp_path / "data"
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(hotpot_item(i)) for i in range(4)]
    (shelf.folder / "eval_50.json").write_text("[{}, {}]")
    get(["hotpotqa", "published"], out, shelf, documents=(50,))
    (out / "hotpot_dev_distractor_v1.part.json").write_text(json.dumps([hotpot_item(0)]))
    (out / "squad").mkdir()
    (out / "squad" / "dev-v2.0.json").write_text("{")
    (out / "published" / "eval_50.json").write_text("[{}, {}, {}]")
    text = "\n".join(status(out))
    assert "4 questions, " in text
    assert f"{(out / HOTPOTQA).stat().st_size:,} bytes" in text
    assert hashlib.sha256((out / HOTPOTQA).read_bytes()).hexdigest() in text
    assert "as fetched from hub: hotpotqa/hotpot_qa" in text
    assert "read by ruler_hqa, " in text
    assert "read by none, hotpot_dev_distractor_v1.json comes first" in text
    assert "NOT READABLE (JSONDecodeError" in text
    assert "CHANGED since it was fetched" in text
    assert "3 questions" in text
    assert "missing: PaulGrahamEssays.json" in text
    assert "eval_100.json, eval_200.json" in text


def test_the_status_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["data", "status", "--data", str(tmp_path)]) == 0
    assert "missing: data.zip" in capsys.readouterr().out
    assert run.main(["data", "status", "--data", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_file_that_status_counts_is_the_one_that_tasks_read(tmp_path: Path) -> None:
    for name, count in (("a", 2), ("b", 3)):
        path = tmp_path / f"hotpot_dev_distractor_v1.{name}.json"
        path.write_text(json.dumps([hotpot_item(i) for i in range(count)]))
    lines = list(status(tmp_path))
    assert len(Corpora(tmp_path).hotpotqa().questions) == 2
    assert "2 questions" in lines[2]
    assert len(read_hotpotqa(path).questions) == 3
