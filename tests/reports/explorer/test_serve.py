"""`run.py view`: the explorer over a store, on loopback, read-only."""

from __future__ import annotations

import html
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.store import Store
from core.errors import UsageError
from reports.explorer.serve import Viewer, server_of
from run import main


@pytest.fixture
def port(swept: Path) -> Iterator[int]:
    with server_of(Viewer.of([swept]), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def get(port: int, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def test_page_columns_and_turns_are_served(port: int) -> None:
    status, text = get(port, "/")
    page = html.unescape(text)
    assert status == 200
    assert "script-src 'sha256-" in page
    assert "connect-src 'self'" in page
    columns = json.loads(get(port, "/columns?since=0&samples=0")[1])
    assert columns["live"]
    assert sum(len(block["index"]) for block in columns["blocks"].values()) == 12
    again = json.loads(get(port, f"/columns?since={columns['version']}&samples=8")[1])
    assert (again["blocks"], again["samples"]) == ({}, [])
    sample = json.loads(get(port, "/turns?cell=0&index=1")[1])
    assert sample["turns"]
    assert sample["turns"][0]["text"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_name_is_refused(port: int, host: str) -> None:
    status, text = get(port, "/turns?cell=0&index=0", host=host or " ")
    assert status == 403
    assert "turns" not in text


def test_behind_a_tunnel_the_port_is_another_one(port: int) -> None:
    assert get(port, "/", host="localhost:9999")[0] == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/elsewhere", 404), ("/turns?cell=99&index=0", 404), ("/turns?cell=0&index=99", 404),
     ("/turns", 400), ("/columns?since=x", 400), ("/../run.sqlite", 404), ("/report", 404)],
)  # fmt: skip
def test_what_is_not_there_is_told(port: int, path: str, status: int) -> None:
    assert get(port, path)[0] == status


def test_nothing_can_be_written(port: int) -> None:
    assert get(port, "/", method="POST")[0] == 501


def test_turns_of_a_report_are_all_failures_or_a_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["report", "results/x", "--turns", "some"])
    assert "'some' is not all, failures or a number" in capsys.readouterr().err


def test_a_sweep_that_holds_the_store_is_no_hindrance(port: int, swept: Path) -> None:
    with Store.write(swept):
        assert get(port, "/columns")[0] == 200


def test_a_taken_port_and_a_folder_without_a_run_are_told(
    port: int, swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=f"port {port} .* is taken; give another with --port"):
        server_of(Viewer.of([swept]), port)
    assert main(["view", str(tmp_path)]) == 2
    assert "no run.sqlite there" in capsys.readouterr().err
