"""The explorer over a run's store, on the loopback interface, while a sweep may be writing.

    GET /                                the page
    GET /columns?since=N&samples=M       cells that changed since version N, as JSON
    GET /turns?cell=C&index=I            one sample turn by turn, as JSON
    GET /report                          the page of the run's report, if there is one

Only reads. A request whose Host is not this machine's own name for itself is refused, so that a
web page elsewhere cannot read a run through a name that it lets point to 127.0.0.1.
"""

from __future__ import annotations

import errno
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from core.errors import HarnessError, UsageError
from reports.causes.diagnosed import Runs
from reports.explorer.chunks import Remaker
from reports.explorer.page import live_page, remakers_of
from reports.explorer.table import Table
from reports.explorer.turns import sample_turns
from reports.run.exported import run_name

HOST = "127.0.0.1"
OWN_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Of any port: behind a tunnel it is another one."""


class NotFoundError(Exception):
    """There is no such address, or nothing behind it."""


@dataclass(slots=True)
class Viewer:
    """What the server knows. One request at a time reads the store."""

    runs: Runs
    table: Table
    remakers: Sequence[Remaker]
    report: Path | None
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, paths: Sequence[Path], data: Path | None = None) -> Viewer:
        """Opens runs. `data`: the folder of corpora that contexts are made from again.

        Raises:
            UsageError: there is no run.
        """
        runs = Runs(paths)
        name = " + ".join(map(run_name, paths))
        report = paths[0] / "report" / "index.html" if len(paths) == 1 else None
        return cls(runs, Table(runs, name, live=True), remakers_of(runs, data), report)

    def page(self, query: Mapping[str, str]) -> tuple[str, str]:
        """The page."""
        there = self.report is not None and self.report.is_file()
        return "text/html", live_page(self.table.name, "report" if there else None)

    def columns(self, query: Mapping[str, str]) -> tuple[str, str]:
        """What changed, for a page that has the rest."""
        since, samples = int(query.get("since", 0)), int(query.get("samples", 0))
        with self._lock:
            self.table.refresh()
            found = self.table.data(since, samples)
        return "application/json", json.dumps(found, allow_nan=False)

    def turns(self, query: Mapping[str, str]) -> tuple[str, str]:
        """A sample."""
        number, index = int(query["cell"]), int(query["index"])
        if not 0 <= number < len(self.runs.places):
            raise NotFoundError(f"cell {number}")
        with self._lock:
            for one in self.runs.diagnosed({number}, {index}):
                found = sample_turns(one, self.remakers[self.runs.places[number].run])
                return "application/json", json.dumps(found, allow_nan=False)
        raise NotFoundError(f"sample {index} of cell {number}")

    def report_page(self, query: Mapping[str, str]) -> tuple[str, str]:
        """The report that was rendered last."""
        if self.report is None or not self.report.is_file():
            raise NotFoundError("report")
        return "text/html", self.report.read_text(encoding="utf-8")


class _Handler(BaseHTTPRequestHandler):
    viewer: Viewer

    def do_GET(self) -> None:
        """Answers one request."""
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in OWN_NAMES and host not in OWN_NAMES:
            self._send(403, "text/plain", f"Host {host[:200]!r} is not this machine's own name.\n")
            return
        address = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        views: dict[str, Callable[[Mapping[str, str]], tuple[str, str]]] = {
            "/": self.viewer.page,
            "/columns": self.viewer.columns,
            "/turns": self.viewer.turns,
            "/report": self.viewer.report_page,
        }
        try:
            if address.path not in views:
                raise NotFoundError(address.path)
            self._send(200, *views[address.path](query))
        except NotFoundError as error:
            self._send(404, "text/plain", f"not here: {error}\n")
        except (KeyError, ValueError) as error:
            self._send(400, "text/plain", f"not understood: {error}\n")
        except HarnessError as error:
            self._send(500, "text/plain", f"{error}\n")

    def _send(self, status: int, kind: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            content = gzip.compress(content, 1)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the terminal belongs to the user."""


def server_of(viewer: Viewer, port: int) -> ThreadingHTTPServer:
    """A server that is bound and not yet answering; port 0 takes a free one.

    Raises:
        UsageError: the port is taken, or not for this user.
    """
    handler = type("Handler", (_Handler,), {"viewer": viewer})
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        taken = "is taken" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
        raise UsageError(f"port {port} of {HOST} {taken}; give another with --port") from error
    server.daemon_threads = True
    return server
