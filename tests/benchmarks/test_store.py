"""The store keeps what was committed, tells damage from emptiness, and has one writer."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ledger import ledger
from benchmarks.store import STORE_NAME, Cell, Store
from core.errors import StoreError, UsageError
from core.evidence import Placed
from core.types import Answer, Evidence, Failure, Json, TextSpan, TokenSpan, Turn
from serving.limits.budget import Spent
from tests.conftest import make_sample

CELL = Cell(0, "niah_single_1", 1024, "memagent", "pocket", 3)

SETTINGS: dict[str, Json] = {"seed": 1, "tasks": {CELL.task: {"metric": "sub_em"}}}


def turn(reply: str, finish: str = "stop") -> Turn:
    return Turn("memory", (), reply, finish, 10, 2, 0.5)


def filled(run_dir: Path) -> None:
    with Store.write(run_dir) as store:
        store.set_up(SETTINGS, [CELL])
        store.add_turn((0, 0, 0), 0, "h0", turn("a"))
        store.add_turn((0, 0, 0), 1, "h1", turn("b", "length"))
        scores = {"published": {"sub_em": 1.0}, "strict": {"sub_em": 0.5}}
        store.finish_sample(0, make_sample(["x"]), Answer("the answer is b", "b", 7), scores)
        zero = {"published": {"sub_em": 0.0}, "strict": {"sub_em": 0.0}}
        store.finish_sample(0, make_sample(["x"], index=1), Failure("timeout", "late"), zero)


def test_a_run_reads_back_as_written(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.read(tmp_path) as store:
        assert store.settings() == SETTINGS
        assert store.cells() == [CELL]
        assert store.done() == {(0, 0, 0)}
        first, second = store.sample_rows()
        assert [t["reply"] for t in store.turn_rows()] == ["a", "b"]
    assert (first["turns"], first["prompt_tokens"], first["seconds"]) == (2, 20, 1.0)
    assert (first["prediction"], first["truncated_tokens"], first["cut_turns"]) == ("b", 7, 1)
    assert first["scores"]["strict"] == {"sub_em": 0.5}
    assert (second["status"], second["error_kind"]) == ("error", "timeout")


def test_a_run_keeps_what_turns_told_and_where_the_evidence_stands(tmp_path: Path) -> None:
    told = replace(turn("<think>m</think> m"), reads=(TokenSpan(0, 4), TokenSpan(9, 12)))
    turns = [replace(told, memory=" m"), replace(turn("same"), memory="same"), turn("nothing told")]
    fact = Evidence(0, 1, 2, "x")
    with Store.write(tmp_path) as store:
        store.set_up(SETTINGS, [CELL])
        for number, one in enumerate(turns):
            store.add_turn((0, 0, 0), number, f"h{number}", one)
        placed = Placed(fact, TextSpan(1, 2), TokenSpan(5, 7), 0.25)
        store.finish_sample(0, make_sample(["xxxx"]), Answer("r", None), {}, [placed])
        assert [one for _, one in store.turns_of((0, 0, 0))] == turns
        (row,) = store.sample_rows()
        assert row["evidence"] == [{"text": "x", "tokens": [5, 7], "depth": 0.25}]
        rows = [(t["reads"], t["memory"]) for t in store.turn_rows()]
    assert rows == [([[0, 4], [9, 12]], " m"), ([], "same"), ([], None)]


def test_a_memory_that_is_the_reply_is_stored_once(tmp_path: Path) -> None:
    text = "a memory of many words " * 2000
    with Store.write(tmp_path) as store:
        store.set_up(SETTINGS, [CELL])
        store.add_turn((0, 0, 0), 0, "h", replace(turn(text), memory=text))
        (stored,) = store._db.execute("SELECT length(reply) + length(memory) FROM turn").fetchone()
        assert stored is None  # there is a reply, and no memory beside it
        assert store.turns_of((0, 0, 0))[0][1].memory == text


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.write(tmp_path) as store:
        store._db.execute("PRAGMA user_version = 1")
    for opened in (Store.read, Store.write):
        with pytest.raises(StoreError, match=r"store version 1, expected 3.*another version"):
            opened(tmp_path)


def test_the_ledger_adds_up_with_failures_in_the_denominator(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.read(tmp_path) as store:
        (row,) = ledger(store)
    assert (row.attempted, row.ok, row.owed, dict(row.errors)) == (2, 1, 1, {"timeout": 1})
    assert (row.cut, row.unparsed) == (1, 0)
    assert row.scores == {"published": 0.5, "strict": 0.25}


def test_turns_are_forgotten_from_one_on(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.write(tmp_path) as store:
        store.add_turn((0, 1, 0), 1, "h", turn("another draw's"))
        store.forget_turns((0, 0, 0), 1)
        store.add_turn((0, 0, 0), 1, "other", turn("c"))
        stored = [(request, t.reply) for request, t in store.turns_of((0, 0, 0))]
        assert stored == [("h0", "a"), ("other", "c")]
        assert len(store.turns_of((0, 1, 0))) == 1


def test_a_failed_sample_is_replaced_when_it_ends_well(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.write(tmp_path) as store:
        store.finish_sample(0, make_sample(["x"], index=1), Answer("r", None), {})
        assert store.done() == {(0, 0, 0), (0, 1, 0)}
        assert [row["status"] for row in store.sample_rows()] == ["ok", "ok"]


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    with Store.write(tmp_path) as store:
        store.set_up({}, [])
        with pytest.raises(UsageError, match="another process"):
            Store.write(tmp_path)
        Store.read(tmp_path).close()
    Store.write(tmp_path).close()


def test_damage_is_told_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / STORE_NAME
    data = bytearray(path.read_bytes())
    data[:2000] = b"junk" * 500
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged .*\n?.*recover"):
        Store.write(tmp_path)
    assert path.read_bytes() == bytes(data)


def test_damage_inside_a_page_is_found_at_the_start(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / STORE_NAME
    data = bytearray(path.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        Store.write(tmp_path)


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store.write(tmp_path) as store:
        # SQLite's own limit on the file's pages raises the error that a full disk raises.
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="free some space"):
            store.add_turn((0, 0, 0), 2, "h", turn("x" * 50_000))
    with Store.read(tmp_path) as store:
        assert [t.reply for _, t in store.turns_of((0, 0, 0))][:2] == ["a", "b"]


def test_a_folder_without_a_run_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run\.sqlite"):
        Store.read(tmp_path)


def test_thoughts_and_costs_are_kept_beside_the_turns(tmp_path: Path) -> None:
    with Store.write(tmp_path) as store:
        store.set_up({}, [Cell(0, "t", 1, "m", "x", 1)])
        turn = Turn("answer", (), "a", "stop", 1, 2, 0.1, reasoning="hm", usd=0.5)
        store.add_turn((0, 0, 0), 0, "h", turn)
        store.add_turn((0, 0, 0), 1, "h", Turn("answer", (), "b", "stop", 1, 2, 0.1))
        assert store.spent() is None
        store.keep_spent(Spent(0.25, 1.0))
        store.keep_spent(Spent(0.75, None))
    with Store.read(tmp_path) as store:
        assert [(t["reasoning"], t["usd"]) for t in store.turn_rows()] == [("hm", 0.5), ("", 0.0)]
        assert store.usd_by_cell() == {0: 0.5}
        assert store.spent() == Spent(0.75, None)


def test_a_store_of_a_version_before_costs_is_read_and_gone_on_with(tmp_path: Path) -> None:
    with Store.write(tmp_path) as store:
        store.set_up({}, [Cell(0, "t", 1, "m", "x", 1)])
        store.add_turn((0, 0, 0), 0, "h", Turn("answer", (), "a", "stop", 1, 2, 0.1))
    with sqlite3.connect(tmp_path / STORE_NAME) as db:
        db.execute("DROP TABLE aside")
    with Store.read(tmp_path) as store:
        assert [t["usd"] for t in store.turn_rows()] == [0.0]
        assert store.usd_by_cell() == {}
    with Store.write(tmp_path) as store:
        again = Turn("answer", (), "a", "stop", 1, 2, 0.1, usd=0.5)
        store.add_turn((0, 0, 0), 1, "h", again)
        assert store.usd_by_cell() == {0: 0.5}
