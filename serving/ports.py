"""Ports of this machine's loopback."""

from __future__ import annotations

import os
import socket

from core.errors import ServerDied
from serving.app import LOOPBACK


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, below the range that systems hand out by
    themselves, so that nobody takes one before we do. The last starts a range. Processes started
    one after another look in different places: nothing holds a port until its server listens."""
    ports: list[int] = []
    start = 20_000 + os.getpid() * 197 % 9_000
    for port in range(start, start + 3_000):
        if is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ServerDied(f"no {count} free ports between {start} and {start + 3_000}")


def is_free(port: int) -> bool:
    """Whether `port` of loopback can be bound."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
