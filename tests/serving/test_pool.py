"""The owner's side of a pool, with a stand-in for the process that holds Ray."""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from core.errors import DataMissing, RequestRejected, ServerDied, UsageError
from serving import pool as pool_module
from serving.app import PORT_NAMES
from serving.catalogue import find_model
from serving.leftovers import MARK, account_of, clear_away, clear_dead_owners, new_folder
from serving.pool import Pool, Ready
from serving.ports import free_ports, is_free

MODEL = "pocket-base"
READY = {
    "state": "ready",
    "model": MODEL,
    "base_url": "http://127.0.0.1:1/v1",
    "replicas": 2,
    "kind": "CPU",
}


@pytest.fixture
def entry(tmp_path):
    """A catalogue entry whose folder looks like a model."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    source = f"./{os.path.relpath(tmp_path, pool_module.REPOSITORY)}"
    return find_model("pocket-base").model_copy(update={"source": source})


@pytest.fixture
def start(entry, tmp_path, monkeypatch):
    """Makes pools whose process runs the given Python text after it has read its spec."""

    def make(program: str, **options) -> Pool:
        script = tmp_path / "child.py"
        script.write_text(
            "import json, sys, time, os\n"
            "spec = json.loads(sys.stdin.readline())\n"
            "def say(**state): print(json.dumps(state), flush=True)\n" + program
        )
        real = subprocess.Popen

        def popen(command, **keywords):
            return real([sys.executable, str(script)], **keywords)

        monkeypatch.setattr(pool_module.subprocess, "Popen", popen)
        monkeypatch.setattr(pool_module, "STOP_S", 2.0)
        names = options.pop("names", [MODEL])
        entries = [entry.model_copy(update={"name": name}) for name in names]
        return Pool(*entries, log_dir=tmp_path / "logs", report=told.append, **options)

    told: list[str] = []
    make.told = told
    return make


UNTIL_OWNER_LEAVES = f"say(**{READY})\nsys.stdin.read()\n"


def test_a_ready_pool_tells_its_address_and_stops_with_its_owner(start):
    with start(UNTIL_OWNER_LEAVES) as pool:
        assert pool.base_url == "http://127.0.0.1:1/v1"
        assert pool.replicas == 2
        pool.check()
        child = pool._child
        folder = pool._folder
        assert folder.is_dir()
    assert child.returncode == 0
    assert not folder.exists()
    assert "answers at http://127.0.0.1:1/v1" in start.told[-1]


def test_a_pool_that_fails_tells_why(start):
    program = "say(state='failed', text='no memory\\n  | Killed')\n"
    with pytest.raises(ServerDied, match=r"no memory\n  \| Killed"):
        start(program).__enter__()


def test_a_model_that_does_not_fit_is_wrong_use(start):
    with pytest.raises(UsageError, match="takes 4 GPUs"):
        start("say(state='usage', text='takes 4 GPUs')\n").__enter__()


def test_a_process_that_dies_silently_is_told_with_its_last_words(start):
    program = "print('Segmentation fault in libfoo', file=sys.stderr, flush=True)\nos._exit(139)\n"
    with pytest.raises(ServerDied, match=r"pool\.log:\n.*Segmentation fault in libfoo"):
        start(program).__enter__()


def test_a_process_that_hangs_is_given_up_and_killed(start, monkeypatch):
    monkeypatch.setattr(pool_module, "GRACE_S", 0.2)
    monkeypatch.setattr(pool_module, "STOP_S", 0.2)
    pool = start("time.sleep(60)\n", deadline_s=0.3)
    with pytest.raises(ServerDied, match=r"hung for 0\.5 s"):
        pool.__enter__()
    assert pool._child is None


def test_a_pool_that_dies_later_is_found_by_check(start):
    with start(f"say(**{READY})\ntime.sleep(0.2)\nsay(state='failed', text='gone')\n") as pool:
        _until(lambda: pool._ended is not None)
        with pytest.raises(ServerDied, match="gone"):
            pool.check()


def test_the_death_of_a_pools_process_is_told_though_its_replicas_may_answer_on(start):
    with start(f"say(**{READY})\ntime.sleep(0.2)\n") as pool:
        _until(lambda: len(start.told) == 2)
        assert f"the pool of {MODEL} ended" in start.told[-1]
        with pytest.raises(ServerDied, match="ended"):
            pool.check()
    assert len(start.told) == 2


SEVERAL = (
    f"say(state='loading', model='a', replicas=1, kind='CPU')\nsay(**{dict(READY, model='a')})\n"
    "say(state='failed', model='b', text='b has no memory')\n"
    "for line in sys.stdin:\n"
    "    if json.loads(line)['retire'] == 'a':\n"
    f"        say(**{dict(READY, model='c', base_url='http://127.0.0.1:1/c/v1')})\n"
)


def test_a_model_that_is_lost_costs_no_other_and_a_retired_one_makes_room(start):
    pool = start(SEVERAL, names=["a", "b", "c"])
    try:
        pool.start()
        assert pool.wait("a").base_url == "http://127.0.0.1:1/v1"
        with pytest.raises(ServerDied, match="b has no memory"):
            pool.wait("b")
        pool.check("a")
        pool.retire("a")
        assert pool.wait("c").base_url == "http://127.0.0.1:1/c/v1"
    finally:
        pool.stop()


def test_a_replica_that_is_replaced_is_told(start):
    program = (
        f"say(state='loading', model={MODEL!r}, replicas=2, kind='CPU')\nsay(**{READY})\n"
        f"say(state='replicas', model={MODEL!r}, running=1)\n"
        f"say(state='replicas', model={MODEL!r}, running=2)\nsys.stdin.read()\n"
    )
    with start(program) as pool:
        _until(lambda: len(start.told) == 4)
        assert pool.health() == {MODEL: (2, 2)}
    assert start.told[-2:] == [
        f"pool: 1 of 2 replica(s) of {MODEL} run; Serve replaces the others",
        f"pool: 2 of 2 replica(s) of {MODEL} run",
    ]


TAKES_WEIGHTS = (
    f"say(**{READY})\n"
    "for line in sys.stdin:\n"
    "    command = json.loads(line)['weights']\n"
    f"    say(state='replicas', model={MODEL!r}, running=2)\n"
    "    if command['version'] == 13: say(state='refused', text='no such layer')\n"
    "    elif command['version'] == 14: say(state='weights', versions=[14, 0])\n"
    "    elif command['version'] == 15: sys.exit(1)\n"
    "    else: say(state='weights', versions=[command['version']] * 2)\n"
)


def test_new_weights_count_once_every_replica_tells_them(start, tmp_path):
    with start(TAKES_WEIGHTS, weights_folder=tmp_path) as pool:
        pool.load_weights("step-1.safetensors", 1)
        assert pool.weights_versions() == [0, 0]
        with pytest.raises(RequestRejected, match="no such layer"):
            pool.load_weights("step-13.safetensors", 13)
        with pytest.raises(ServerDied, match=r"have the weights \[14, 0\], not 14"):
            pool.load_weights("step-14.safetensors", 14)
        with pytest.raises(ServerDied, match="ended"):
            pool.load_weights("step-15.safetensors", 15)


def test_a_pool_without_a_weights_folder_takes_none(start):
    with start(TAKES_WEIGHTS) as pool, pytest.raises(RuntimeError, match="without a weights"):
        pool.load_weights("step-1.safetensors", 1)


def test_grandchildren_are_killed_even_if_the_process_leaves_them(start, tmp_path):
    pid_file = tmp_path / "pid"
    program = (
        "import subprocess\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)\n"
        f"open({str(pid_file)!r}, 'w').write(str(p.pid))\n" + UNTIL_OWNER_LEAVES
    )
    with start(program):
        orphan = psutil.Process(int(pid_file.read_text()))
        assert orphan.is_running()
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_a_taken_port_is_wrong_use(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            start(UNTIL_OWNER_LEAVES, port=port).start()
        assert not is_free(port)


def test_a_missing_model_is_told_before_anything_starts(entry, tmp_path):
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataMissing, match=r"holds no \*\.safetensors"):
        Pool(entry, log_dir=tmp_path / "logs").start()


def test_free_ports_are_distinct_and_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(map(is_free, ports))


def test_two_processes_started_together_look_for_ports_in_different_places(monkeypatch):
    """Nothing listens on a port yet when the other looks."""
    found = []
    for pid in range(4_000, 4_012):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        found += free_ports(len(PORT_NAMES) + 1)
    assert len(set(found)) == len(found)


def test_remains_of_a_killed_owner_are_cleared_and_those_of_a_living_one_kept():
    dead, living = new_folder(), new_folder()
    gone = dead.with_name(dead.name.replace(str(os.getpid()), str(_free_pid())))
    dead.rename(gone)
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MARK: str(gone)},
    )
    try:
        _until(lambda: psutil.Process(left.pid).environ().get(MARK) == str(gone))
        clear_dead_owners()
        left.wait(timeout=5)  # reaped by now, so its exit code is not to be had
        assert not gone.exists()
        assert living.exists()
    finally:
        left.kill()
        left.wait()
        clear_away(living)
        clear_away(gone)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
def test_shared_memory_that_nobody_uses_is_deleted_and_other_kept():
    older = _shared_file()
    time.sleep(0.05)
    folder = new_folder()
    left, used = _shared_file(), _shared_file()
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        clear_away(folder)
        assert (older.exists(), left.exists(), used.exists()) == (True, False, True)
    older.unlink()
    used.unlink()


def _shared_file() -> Path:
    file = Path("/dev/shm") / f"psm_{uuid.uuid4().hex[:8]}"
    file.write_bytes(b"12345678")
    return file


def test_the_account_of_a_failure_names_the_first_error(tmp_path):
    logs = tmp_path / "session_2026" / "logs"
    logs.mkdir(parents=True)
    own = tmp_path / "run" / "pool.log"
    own.parent.mkdir()
    own.write_text("started\n")
    assert account_of(tmp_path, own) == f"The end of {own}:\n  | started"

    (logs / "worker-1.err").write_text(
        "Traceback (most recent call last):\n  raise RuntimeError(\n"
        "RuntimeError: Traceback (most recent call last):\n"
        "RuntimeError: Engine core initialization failed.\n"
    )
    (logs / "worker-2.out").write_text(
        "(Worker pid=1) ERROR 11-20 [executor.py:944] a.b.SafetensorError: incomplete metadata\n"
    )
    account = account_of(tmp_path, own)
    assert account.splitlines()[1:3] == [
        "  | a.b.SafetensorError: incomplete metadata",
        "  | RuntimeError: Engine core initialization failed.",
    ]
    assert account.endswith(f"More in {own.parent}/ray/session_2026/logs/worker-2.out")
    assert "nothing.log" in account_of(None, tmp_path / "nothing.log")


def test_serve_forever_stops_cleanly_on_sigterm(entry, tmp_path):
    """`run.py serve` in a process of its own, since it handles signals."""
    child = tmp_path / "child.py"
    child.write_text(
        "import json, sys\nsys.stdin.readline()\n"
        f"print({json.dumps(READY)!r}, flush=True)\nsys.stdin.read()\n"
    )
    program = (
        "import subprocess, sys; from pathlib import Path; import serving.pool as pool;"
        "real = subprocess.Popen;"
        f"pool.subprocess.Popen = lambda c, **k: real([sys.executable, {str(child)!r}], **k);"
        "from serving.catalogue import find_model;"
        f"e = find_model('pocket-base').model_copy(update=dict(source={entry.source!r}));"
        "from commands.serve import serve_forever;"
        f"serve_forever(e, deadline_s=60, log_dir=Path({str(tmp_path / 'logs')!r}))"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=pool_module.REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "http://127.0.0.1:1/v1\n"
    server.send_signal(signal.SIGTERM)
    with server.stdout as output:
        rest = output.read()
    assert server.wait(timeout=20) == 0
    assert "curl http://127.0.0.1:1/v1/chat/completions" in rest
    assert rest.endswith("stopped\n")


def _free_pid() -> int:
    pid = 4_000_000
    while psutil.pid_exists(pid):
        pid -= 1
    return pid


def _until(condition, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_model_whose_turn_comes_late_is_not_taken_for_hung(tmp_path: Path) -> None:
    names = ("pocket-base", "pocket-long")
    pool = Pool(*map(find_model, names), log_dir=tmp_path, deadline_s=60)
    pool._models["pocket-base"].ready = Ready("http://127.0.0.1:1/v1", 1, "CPU")
    # All was well for an hour, and there was nothing to tell.
    pool._heard = time.monotonic() - 3600.0
    assert pool.poll("pocket-long") is None
    pool.retire("pocket-base")
    assert pool.poll("pocket-long") is None
