"""Two Ray nodes, and what dies in the middle of a sweep: the Serve controller, a replica, a node,
the pool's process. No sample is lost or stored twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from benchmarks.store import Store
from serving.catalogue import ModelEntry
from serving.leftovers import clear_away, new_folder
from serving.placement import with_engine
from serving.pool import Pool
from tests.conftest import ROOT

pytestmark = pytest.mark.cluster

SUITE = """
summary = "small"
seed = 1
[sampling]
temperature = 0.7
[[cells]]
pairs = [["pocket-memagent", "memagent"]]
tasks = ["niah_single_1"]
lengths = [8192]
samples = 16
"""
WAIT_S = 1500.0


@dataclass
class TwoNodes:
    """A cluster that runs, and the environment that reaches it."""

    process: subprocess.Popen[str]
    address: str
    environment: dict[str, str]

    def workers(self, title: str) -> list[psutil.Process]:
        """The cluster's processes of that title."""
        found = []
        for pid in psutil.pids():  # process_iter keeps objects of processes that have ended
            try:
                process = psutil.Process(pid)
                ours = process.environ().get("RAY_AUTH_TOKEN") == self.environment["RAY_AUTH_TOKEN"]
                if ours and title in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@contextmanager
def two_nodes(cpus: int) -> Iterator[TwoNodes]:
    folder = new_folder()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.urandom(32).hex(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "90",
    }
    program = str(Path(__file__).with_name("two_nodes.py"))
    process = subprocess.Popen(
        [sys.executable, program, str(folder), str(cpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    nodes = TwoNodes(process, process.stdout.readline().strip(), environment)
    try:
        yield nodes
    finally:
        process.stdin.close()
        process.wait(timeout=120)
        process.stdout.close()
        for worker in nodes.workers(""):
            worker.kill()
        clear_away(folder)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes(cpus=1) as nodes:
        yield nodes


@pytest.fixture
def command(cluster: TwoNodes, tmp_path: Path) -> list[str]:
    suite = tmp_path / "small.toml"
    suite.write_text(SUITE)
    flags = ["--ray-address", cluster.address, "--concurrency", "4", "--deadline", "1200"]
    run = str(ROOT / "run.py")
    return [sys.executable, run, "sweep", str(suite), *flags, "--out", str(tmp_path / "run")]


def turns(run_dir: Path) -> int:
    if not (run_dir / "run.sqlite").is_file():
        return 0
    with Store.read(run_dir) as store:
        return sum(1 for _ in store.turn_rows())


def until(condition: Callable[[], bool], sweep: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert sweep.poll() is None, "the sweep ended"
        assert time.monotonic() < deadline
        time.sleep(0.2)


def more_turns(sweep: subprocess.Popen[bytes], run_dir: Path, count: int = 12) -> None:
    goal = turns(run_dir) + count
    until(lambda: turns(run_dir) >= goal, sweep)


def check_whole(run_dir: Path) -> None:
    """Every sample once, and of each the turns from the first to the last."""
    with Store.read(run_dir) as store:
        samples = list(store.sample_rows())
        asked = [(row["id"], row["turn"]) for row in store.turn_rows()]
    assert sorted(row["index"] for row in samples) == list(range(16))
    assert {row["status"] for row in samples} == {"ok"}
    assert len(set(asked)) == len(asked) == sum(row["turns"] for row in samples)
    for row in samples:
        assert sorted(turn for key, turn in asked if key == row["id"]) == list(range(row["turns"]))


def test_deaths_in_the_middle_of_a_sweep_lose_nothing(
    cluster: TwoNodes, command: list[str], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    sweep = subprocess.Popen(command, env=cluster.environment)
    try:
        more_turns(sweep, run_dir)
        replicas = cluster.workers("ray::ServeReplica") and [
            worker for worker in cluster.workers("LLMServer") if "Replica" in worker.cmdline()[0]
        ]
        assert len({worker.ppid() for worker in replicas}) == 2  # one under each raylet

        (controller,) = cluster.workers("ray::ServeController")
        controller.kill()
        more_turns(sweep, run_dir)

        replicas[0].kill()
        more_turns(sweep, run_dir)

        assert cluster.process.stdin is not None
        assert cluster.process.stdout is not None
        cluster.process.stdin.write("remove\n")
        cluster.process.stdin.flush()
        assert cluster.process.stdout.readline() == "removed\n"
        assert sweep.wait(timeout=WAIT_S) == 0
    finally:
        sweep.kill()
        sweep.wait()
    check_whole(run_dir)


def test_a_pool_that_is_killed_is_told_and_its_remains_make_room_for_the_next(
    cluster: TwoNodes, command: list[str], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    sweep = subprocess.Popen(command, env=cluster.environment, stderr=subprocess.PIPE)
    try:
        more_turns(sweep, run_dir)
        (pool,) = [
            child
            for child in psutil.Process(sweep.pid).children(recursive=True)
            if "serving.process.server" in child.cmdline()
        ]
        pool.send_signal(signal.SIGKILL)
        _, said = sweep.communicate(timeout=300)
        # Its replicas live on, and may answer what is left; if not, that is owed.
        assert sweep.returncode in (0, 1)
        assert b"the pool of pocket-memagent ended" in said
    finally:
        sweep.kill()
        sweep.wait()
    # The application of the dead pool still holds the CPUs; it is ours, and is cleared.
    for out in (run_dir, tmp_path / "another"):
        again = [*command[:-1], str(out)]
        assert subprocess.run(again, env=cluster.environment, check=False).returncode == 0
        check_whole(out)


GROUPS = """
import json, sys, ray
from ray.util import placement_group_table
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(json.dumps([
    [group["strategy"], list(group["bundles_to_node_id"].values())]
    for group in placement_group_table().values() if group["state"] == "CREATED"
]))
"""


def test_a_replica_of_two_workers_stays_on_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_model: ModelEntry
) -> None:
    """Two nodes of three CPUs: two replicas of two workers fit, and a third one only across."""
    wide = with_engine(served_model, {"tensor_parallel_size": 2})
    with two_nodes(cpus=3) as nodes:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "PYTHONPATH"):
            monkeypatch.setenv(name, nodes.environment[name])
        pool = Pool(wide, log_dir=tmp_path, ray_address=nodes.address, deadline_s=1200)
        with pool:
            assert pool.replicas == 2
            told = subprocess.run(
                [sys.executable, "-c", GROUPS, nodes.address],
                env=nodes.environment | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
                capture_output=True,
                text=True,
                check=True,
            )
    groups = json.loads(told.stdout.splitlines()[-1])
    assert [strategy for strategy, _ in groups] == ["STRICT_PACK"] * 2
    assert [len(set(bundles)) for _, bundles in groups] == [1, 1]
    assert [len(bundles) for _, bundles in groups] == [2, 2]
    assert groups[0][1] != groups[1][1]
