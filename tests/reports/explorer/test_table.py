"""Rows and turns of the explorer, as the page gets them."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import STORE_NAME, Cell, Store
from core.context import Context
from core.types import Answer, Problem, Sample, Turn
from reports.causes.diagnosed import Runs
from reports.explorer.page import explorer_of, remakers_of, script
from reports.explorer.table import Table, packed
from reports.explorer.turns import sample_turns
from reports.run.merged import export_runs
from tests.conftest import ROOT
from tests.reports.conftest import settings_for


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def table_of(run: Path) -> Table:
    table = Table(Runs([run]), "run")
    table.refresh()
    return table


def turns_of(run_dir: Path, cell: int, index: int, most_chars: int | None = None) -> dict[str, Any]:
    runs = Runs([run_dir])
    one = next(one for one in runs.diagnosed({cell}) if one.row["index"] == index)
    return sample_turns(one, remakers_of(runs, None)[0], most_chars)


def with_settings(run_dir: Path, to: Path, change: dict[str, Any]) -> Path:
    """A copy of a run whose model's settings are others."""
    shutil.copytree(run_dir, to)
    with Store.read(to) as store:
        settings = store.settings() or {}
    settings["models"]["m"] |= change
    db = sqlite3.connect(to / STORE_NAME)
    db.execute("UPDATE run SET value = ? WHERE key = 'settings'", (json.dumps(settings),))
    db.commit()
    db.close()
    return to


def test_columns_hold_every_sample_and_methods_share_a_sample(swept: Path) -> None:
    data = table_of(swept).data()
    assert [cell[:3] for cell in data["cells"]] == [
        ["niah_single_1", 2048, "memagent"],
        ["niah_single_1", 4096, "memagent"],
        ["niah_single_1", 4096, "full_context"],
    ]
    assert [len(block["index"]) for block in data["blocks"].values()] == [4, 4, 4]
    assert data["blocks"][1]["of"] == data["blocks"][2]["of"]  # the same haystacks
    assert len(data["samples"]) == 8
    for block in data["blocks"].values():
        for score, cause in zip(block["strict"], block["cause"], strict=True):
            assert (score < 1) == bool(cause)


def test_only_cells_that_changed_are_sent_again(swept: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(swept, run_dir)
    db = sqlite3.connect(run_dir / STORE_NAME)
    kept = db.execute("SELECT * FROM sample WHERE cell = 2 AND idx = 3").fetchone()
    db.execute("DELETE FROM sample WHERE cell = 2 AND idx = 3")
    db.commit()
    table = Table(Runs([run_dir]), "run", live=True)
    table.refresh()
    first = table.data()
    assert len(first["blocks"][1]["index"]) == 3
    table.refresh()
    assert table.data(first["version"], len(first["samples"]))["blocks"] == {}
    db.execute(f"INSERT INTO sample VALUES ({', '.join('?' * len(kept))})", kept)
    db.commit()
    db.close()
    table.refresh()
    news = table.data(first["version"], len(first["samples"]))
    assert [*news["blocks"]] == [1]
    assert len(news["blocks"][1]["index"]) == 4
    assert news["samples"] == []  # full context had met that sample before


def test_draws_of_a_sample_are_rows_of_one_sample(tmp_path: Path) -> None:
    with Store.write(tmp_path) as store:
        store.set_up(settings_for("m"), [Cell(1, "niah", 1024, "memagent", "m", 1, 2)])
        sample = Sample("id", "niah", 0, Problem(Context(["hay"]), "Which?"), ("42",), "any")
        for draw in range(2):
            turn = Turn("answer", (), f"draw {draw}", "stop", 100, 10, 0.5)
            store.add_turn((1, 0, draw), 0, "hash", turn)
            scores = {profile: {"sub_em": 0.0} for profile in ("strict", "published")}
            store.finish_sample(1, sample, Answer("no", "no"), scores, draw=draw)
    blocks = explorer_of(table_of(tmp_path), "all").blocks
    data = unpacked(blocks["samples-data"])
    assert [data["blocks"]["0"][name] for name in ("of", "index")] == [[0, 0], [0, 1]]
    assert unpacked(blocks["turns-0-1"])["turns"][0]["reply"] == "draw 1"


def test_what_a_turn_read_is_made_again_with_its_evidence(swept: Path) -> None:
    sample = turns_of(swept, 1, 0)
    assert sample["gone"] is None
    reading = [turn for turn in sample["turns"] if turn["reads"]]
    marked = [t["text"][a:b] for t in reading for a, b, _ in t["marks"]]
    assert any(sample["golds"][0] in text for text in marked)
    assert all(len(turn["text"]) > 200 for turn in reading[:-1])
    assert [turn["tag"] for turn in sample["turns"]][-2:] == ["memory", "answer"]


def test_a_failure_says_the_turn_in_which_the_fact_was_lost(swept: Path) -> None:
    samples = [turns_of(swept, cell, index) for cell in (0, 1) for index in range(4)]
    lost = [sample for sample in samples if sample["cause"] == "stored_then_lost"]
    assert lost
    for sample in lost:
        line = sample["lifelines"][sample["fact"]]
        assert sample["lost"] == line["lost"] == line["stored"] + 2
        memory = sample["turns"][sample["lost"]]["memory"]
        assert sample["golds"][0] not in str(memory)


def test_a_page_keeps_the_text_of_the_turns_that_matter(swept: Path) -> None:
    sample = turns_of(swept, 1, 0, most_chars=1500)
    shown = [turn for turn in sample["turns"] if "text" in turn]
    assert shown
    assert sum(len(turn["text"]) for turn in shown) <= 1500
    assert any(turn["marks"] for turn in shown)
    assert "run.py view" in sample["left_out"]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"source": "checkpoints/gone"}, "not here any more"), ({"tokenizer": "0"}, "looked in")],
)
def test_where_the_data_are_gone_it_says_so_and_shows_the_rest(
    swept: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    sample = turns_of(with_settings(swept, tmp_path / "run", change), 0, 0)
    assert said in sample["gone"]
    assert all("text" not in turn for turn in sample["turns"])
    assert sample["turns"][0]["reply"]


def test_turns_are_chosen_failures_first(swept: Path) -> None:
    table = table_of(swept)

    def embedded(turns: Any) -> set[str]:
        blocks = explorer_of(table, turns).blocks
        return {name for name in blocks if name.startswith("turns-")}

    failed = {
        f"turns-{number}-{index}"
        for number, block in table.data()["blocks"].items()
        for index, score in zip(block["index"], block["strict"], strict=True)
        if score < 1
    }
    assert failed
    assert embedded("failures") == failed
    assert len(embedded("all")) == 12
    assert embedded(0) == set()
    assert embedded(1) < failed
    assert embedded(len(failed) + 1) > failed


def test_an_export_has_rows_and_no_turns(swept: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl.gz"
    with Store.read(swept) as store:
        export_runs([store], out)
    blocks = explorer_of(table_of(out), "all").blocks
    assert [*blocks] == ["samples-data"]
    data = unpacked(blocks["samples-data"])
    assert sum(len(block["index"]) for block in data["blocks"].values()) == 12


def test_causes_of_the_gallerys_run_add_up_to_its_failures() -> None:
    page = ROOT / "reports" / "gallery" / "explorer.html"
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 3_000_000
    found = re.search(r'id="samples-data">([^<]*)<', text)
    assert found
    blocks = unpacked(found[1])["blocks"].values()
    assert sum(len(block["index"]) for block in blocks) == text.count('id="turns-') == 16
    for block in blocks:
        failures = sum(score < 1 for score in block["strict"])
        assert sum(bool(cause) for cause in block["cause"]) == failures


def test_blocks_hold_no_markup_and_the_script_is_one_module() -> None:
    assert "<" not in packed({"reply": "</script><script>alert(1)</script>"})
    assert "</script" not in script()
    assert not [line for line in script().splitlines() if line.startswith(("import ", "export "))]
