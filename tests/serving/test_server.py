"""The process that holds a pool, with a stand-in for Ray and a clock of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from core.errors import ServerDied
from serving import server
from serving.app import Resources
from serving.catalogue import ModelEntry


class Clock:
    """Stands in for `time`: it moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server, "time", clock)
    monkeypatch.setattr(server, "POLL_PERIOD_S", 10.0)  # so that an hour is 360 requests
    return clock


@pytest.fixture
def broken_port() -> Iterator[int]:
    """Port of a server that answers every request with an error."""

    class Broken(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(500, "the engine is dead")

        def log_message(self, format: str, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield http.server_port
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("start_s", "deadline_s", "given_up_s"),
    [
        (10.0, 3600.0, 10.0 + server.ANSWER_S),
        (200.0, 3600.0, 200.0 + 2 * 200.0),
        (10.0, 60.0, 60.0),
    ],
    ids=["quick to start", "slow to start", "short of time"],
)
def test_a_pool_that_came_up_and_answers_only_with_errors_is_given_up(
    start_s: float,
    deadline_s: float,
    given_up_s: float,
    served_model: ModelEntry,
    clock: Clock,
    broken_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After ANSWER_S or twice the time that it took to start, if there is so much left."""
    spec = server.ServerSpec(
        entry=served_model,
        port=broken_port,
        ray_address=None,
        folder=tmp_path / "ray",
        log_file=tmp_path / "pool.log",
        deadline_s=deadline_s,
    )
    pool = server._Pool(spec, lambda **state: None, queue.Queue())
    address = ("127.0.0.1", broken_port, "")
    monkeypatch.setattr(pool, "_start_ray", lambda: Resources(cpus=2, gpus=0, memory_gib=8))
    monkeypatch.setattr(pool, "_start_application", lambda layout: address)
    monkeypatch.setattr(pool, "_wait_until_running", lambda layout: clock.sleep(start_s))
    with pytest.raises(ServerDied, match="runs but does not answer: HTTP Error 500"):
        pool.start()
    assert given_up_s < clock.now <= given_up_s + server.POLL_PERIOD_S
