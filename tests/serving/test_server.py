"""The process that holds a pool, with a stand-in for Ray and a clock of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.errors import ServerDied
from serving.catalogue import ModelEntry
from serving.placement import Layout
from serving.process import server, watch
from serving.process.watch import Served, Status


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
    monkeypatch.setattr(watch, "time", clock)
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
        (10.0, 3600.0, 10.0 + watch.ANSWER_S),
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
) -> None:
    """After ANSWER_S or twice the time that it took to start, if there is so much left."""
    spec = server.ServerSpec(
        entries=(served_model,),
        port=broken_port,
        ray_address=None,
        folder=tmp_path / "ray",
        log_file=tmp_path / "pool.log",
        deadline_s=deadline_s,
    )
    pool = server._Pool(spec, lambda **state: None, queue.Queue())
    url = f"http://127.0.0.1:{broken_port}/v1"
    served = Served(served_model, "app", Layout(1, on_gpu=False), url, 0.0, deadline_s)
    while clock.now < start_s:
        pool.watch.look(served, Status("DEPLOYING", 0, ""))
        clock.sleep(10.0)

    def go_on_for_ever() -> None:
        while True:
            pool.watch.look(served, Status("RUNNING", 1, ""))
            clock.sleep(10.0)

    with pytest.raises(ServerDied, match="runs but does not answer: HTTP Error 500"):
        go_on_for_ever()
    assert given_up_s < clock.now <= given_up_s + 10.0


def make_pool(entry: ModelEntry, folder: Path, states: list[dict[str, Any]]) -> server._Pool:
    spec = server.ServerSpec(
        entries=(entry,),
        port=1,
        ray_address=None,
        folder=folder,
        log_file=folder / "pool.log",
        deadline_s=600.0,
    )
    return server._Pool(spec, lambda **state: states.append(state), queue.Queue())


def test_a_model_that_dies_for_good_is_given_up_and_the_pool_goes_on(
    served_model: ModelEntry, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, Any]] = []
    deleted: list[str] = []
    monkeypatch.setattr(server, "_delete", deleted.append)
    monkeypatch.setattr(watch.replicas, "unanswered_s", lambda app: {})
    pool = make_pool(served_model, tmp_path, states)
    pool.waiting.clear()
    served = Served(served_model, "app", Layout(2, on_gpu=False), "", 0.0, 600.0, 2, ready=True)
    pool.served[served_model.name] = served

    pool._look_after(served, Status("RUNNING", 1, ""))  # Serve replaces one by itself
    clock.sleep(700.0)
    pool._look_after(served, Status("RUNNING", 1, ""))
    pool._look_after(served, Status("RUNNING", 2, ""))
    assert [state["state"] for state in states] == ["replicas", "replicas"]

    pool._look_after(served, Status("UNHEALTHY", 0, ""))
    clock.sleep(700.0)
    pool._look_after(served, Status("UNHEALTHY", 0, "ValueError: no"))
    assert (states[-1]["state"], states[-1]["model"]) == ("failed", served_model.name)
    assert "stopped running (UNHEALTHY): ValueError: no" in states[-1]["text"]
    assert deleted == ["app"]
    assert not pool.served


def test_a_replica_whose_engine_stands_still_is_ended(
    served_model: ModelEntry, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []
    silent = {"a": 0.0, "b": watch.FROZEN_S - 1}
    monkeypatch.setattr(watch.replicas, "unanswered_s", lambda app: silent)
    monkeypatch.setattr(watch.replicas, "kill", killed.append)
    pool = make_pool(served_model, tmp_path, [])
    served = Served(served_model, "app", Layout(2, on_gpu=False), "", 0.0, 600.0, 2, ready=True)

    pool.watch.look(served, Status("RUNNING", 2, ""))
    assert not killed
    silent["b"] = watch.FROZEN_S + 1
    pool.watch.look(served, Status("RUNNING", 2, ""))  # asked a moment ago
    assert not killed
    clock.sleep(watch.PULSE_PERIOD_S)
    pool.watch.look(served, Status("RUNNING", 2, ""))
    assert killed == ["b"]
