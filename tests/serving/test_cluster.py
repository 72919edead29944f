"""Joining a cluster: what is told before Ray is asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from core.errors import UsageError
from serving.catalogue import REPOSITORY
from serving.ports import free_ports
from serving.process import cluster


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("ray://head:10001", "carry no HTTP .* --ray-address auto, or with HOST:PORT"),
        ("head", "expected HOST:PORT of the head, or auto"),
        ("head:http", "expected HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_joined_is_told(address: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        cluster.join(address, pytest.fail)


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}: nobody listens there"):
        cluster.join(f"127.0.0.1:{port}", pytest.fail)
    assert time.monotonic() - started < cluster.CONNECT_S


def test_a_port_that_is_no_cluster_is_given_up() -> None:
    """Ray itself would wait for minutes, and end the process."""
    program = (
        "import os, sys; from serving.process import cluster; cluster.JOIN_S = 1.0\n"
        "def give_up(text): print(text, flush=True); os._exit(3)\n"
        "cluster.join(sys.argv[1], give_up)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", program, f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            check=False,
            timeout=120,
        )
    assert done.returncode == 3, done.stderr[-2000:]
    assert f"no Ray cluster at 127.0.0.1:{port} let us in within 1 s" in done.stdout


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_head_on_loopback_alone_is_told_from_one_that_all_reach(host: str) -> None:
    with socket.create_server((host, 0)) as head:
        port = head.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
            try:
                outward.connect(("192.0.2.1", 9))
            except OSError:
                pytest.skip("this machine has loopback alone")
        assert cluster._on_loopback_alone(f"127.0.0.1:{port}") is (host == "127.0.0.1")
    assert not cluster._on_loopback_alone("192.0.2.7:6379")


def test_an_application_tells_whose_it_is() -> None:
    name = cluster.application_name("qwen2.5-7b-instruct")
    assert name == f"longmem-qwen2.5-7b-instruct-{socket.gethostname()}-{os.getpid()}"
