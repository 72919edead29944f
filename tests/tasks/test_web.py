"""The network seam: how often a page is asked for, what is refused, how the hub is called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.errors import RequestFailed
from tasks.corpora.web import WAITS_S, Web


class Server(BaseHTTPRequestHandler):
    """Answers by path; `replies` holds the statuses still to give."""

    replies: dict[str, list[int]]

    def do_GET(self) -> None:
        statuses = self.replies.get(self.path, [404])
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/page")
        self.send_header("Content-Length", "2")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"ok")

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Callable[[dict[str, list[int]]], str]]:
    started: list[ThreadingHTTPServer] = []

    def start(replies: dict[str, list[int]]) -> str:
        handler = type("Handler", (Server,), {"replies": replies})
        found = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        started.append(found)
        threading.Thread(target=found.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{found.server_port}"

    yield start
    for found in started:
        found.shutdown()
        found.server_close()


def test_pages_are_asked_for_again_a_few_times(
    server: Callable[[dict[str, list[int]]], str],
) -> None:
    base = server({"/page": [200], "/busy": [500, 429, 200], "/down": [503], "/away": [302],
                   "/closed": [403]})  # fmt: skip
    pauses: list[float] = []
    web = Web(pauses.append)
    assert web.page(f"{base}/page") == web.page(f"{base}/away") == b"ok"
    assert web.page(f"{base}/none") is None
    assert pauses == []
    assert web.page(f"{base}/busy") == b"ok"
    assert pauses == list(WAITS_S)
    with pytest.raises(RequestFailed, match="503"):
        web.page(f"{base}/down")
    assert pauses == 2 * list(WAITS_S)
    with pytest.raises(RequestFailed, match="403"):
        web.page(f"{base}/closed")
    assert pauses == 2 * list(WAITS_S)


def test_a_page_that_has_no_end_is_refused(
    server: Callable[[dict[str, list[int]]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.corpora.web.MAX_PAGE_BYTES", 1)
    with pytest.raises(RequestFailed, match="more than 1 bytes"):
        Web().page(server({"/page": [200]}) + "/page")


def test_local_addresses_and_others(tmp_path: Path) -> None:
    (tmp_path / "a b.html").write_bytes(b"text")
    assert Web().page((tmp_path / "a b.html").as_uri()) == b"text"
    assert Web().page((tmp_path / "none").as_uri()) is None
    for url in ("ftp://x/y", "nonsense", "http://"):
        with pytest.raises(RequestFailed, match="expected an http"):
            Web().page(url)


def test_the_hubs_programs_are_called_as_they_should(
    server: Callable[[dict[str, list[int]]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []

    def load_dataset(*words: str, split: str, revision: str | None) -> list[dict[str, int]]:
        called.append((*words, split, revision))
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported")
        return [{"a": 1}]

    def hf_hub_download(*words: str, repo_type: str) -> str:
        called.append((*words, repo_type))
        if words[1] == "none":
            raise FileNotFoundError("no such entry")
        return str(tmp_path)

    monkeypatch.setenv("HF_ENDPOINT", server({}))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", hf_hub_download)
    web = Web()
    assert list(web.rows("o/d", "c", "s")) == [{"a": 1}]
    assert web.file("o/d", "f") == tmp_path
    with pytest.raises(RequestFailed, match="o/d/none: FileNotFoundError: no such entry"):
        web.file("o/d", "none")
    assert called == [
        ("o/d", "c", "s", None),
        ("o/d", "c", "s", "refs/convert/parquet"),
        ("o/d", "f", "dataset"),
        ("o/d", "none", "dataset"),
    ]
