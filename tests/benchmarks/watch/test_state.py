"""A sweep's state as others read it: from its file, and as Prometheus scrapes it."""

from __future__ import annotations

import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.display import Counts, SweepDisplay
from benchmarks.watch import state as state_module
from benchmarks.watch.metrics import metrics_at
from benchmarks.watch.state import STATE_NAME, StateFile, network_warning, status
from core.errors import UsageError
from core.types import Failure, Turn
from serving.ports import free_ports


@pytest.fixture
def display() -> SweepDisplay:
    display = SweepDisplay(Counts(samples=10, cells=2, work=1000.0, done=4))
    display.health = lambda: {"m": (1, 2)}
    for _ in range(3):
        display.turn(Turn("memory", (), "x", "stop", 90, 10, 2.0))
    display.sample(500.0, Failure("timeout", "no reply\nin time"), cell_done=True)
    return display


def test_a_run_that_runs_is_told_with_its_replicas(tmp_path: Path, display: SweepDisplay) -> None:
    with StateFile(tmp_path, display.state):
        lines, well = status(tmp_path)
        assert lines[0].startswith("cells 1/2  samples 5/10  ")
        assert "errors 1  left 0:00:" in lines[0]
        assert lines[1] == "model m: 1 of 2 replicas run"
        assert lines[2] == "last failure: timeout: no reply in time"
        assert lines[3].startswith("running: process ")
        assert not well
        display.health = lambda: {"m": (2, 2)}
    lines, well = status(tmp_path)
    assert lines[-1].endswith("ago: done")
    assert not well  # a sample failed


def test_a_state_is_written_again_while_the_sweep_runs(
    tmp_path: Path, display: SweepDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "PERIOD_S", 0.02)
    with StateFile(tmp_path, display.state):
        display.counts.done = 9
        deadline = time.monotonic() + 5
        while "samples 9/10" not in status(tmp_path)[0][0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_end_by_an_error_is_told(tmp_path: Path, display: SweepDisplay) -> None:
    with pytest.raises(UsageError), StateFile(tmp_path, display.state):
        raise UsageError("no room")
    assert status(tmp_path)[0][-1].endswith("ago: UsageError: no room")


def test_a_killed_sweep_is_silent(tmp_path: Path, display: SweepDisplay) -> None:
    old = display.state().model_copy(update={"written": datetime.now(UTC) - timedelta(hours=2)})
    (tmp_path / STATE_NAME).write_text(old.model_dump_json())
    lines, well = status(tmp_path)
    assert "no word from process" in lines[-1]
    assert "for 2:00:0" in lines[-1]
    assert not well


@pytest.mark.parametrize(("text", "said"), [(None, "no state.json there"), ("{}", "not a state")])
def test_a_folder_without_a_state_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / STATE_NAME).write_text(text)
    with pytest.raises(UsageError, match=said):
        status(tmp_path)


def test_prometheus_finds_the_figures(display: SweepDisplay) -> None:
    (port,) = free_ports(1)
    with metrics_at(port, display.state):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            text = reply.read().decode()
        with (
            pytest.raises(UsageError, match=f"--metrics {port}: Address already in use"),
            metrics_at(port, display.state),
        ):
            pass
    assert "\nlongmem_samples_done 5.0\n" in text
    assert "\nlongmem_turns_total 3.0\n" in text
    assert '\nlongmem_replicas_running{model="m"} 1.0\n' in text
    with metrics_at(port, display.state):
        pass  # the port is free again


def test_a_network_file_system_is_told_by_its_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert "network file system (nfs4)" in (network_warning(tmp_path / "run", mounts) or "")
    assert network_warning(Path("/usr"), mounts) is None
    assert network_warning(tmp_path, tmp_path / "absent") is None
