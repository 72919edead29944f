"""A sweep through `server_for`: with a stand-in for the process that holds Ray, which serves one
model at a time over HTTP and loses another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.plan import Overrides, make_plan
from benchmarks.servers import ServerOptions, limits_of, server_for
from benchmarks.suite import load_suite
from benchmarks.sweep import sweep
from benchmarks.watch.state import status
from serving import pool as pool_module

PROCESS = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, data):
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"data": [{"id": self.path.split("/")[1]}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["model"] == self.path.split("/")[1]
        self.answer({
            "choices": [{"text": "Therefore, the answer is 1.", "finish_reason": "stop"}],
            "usage": {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 5},
        })

    def log_message(self, *_):
        pass

def say(**state):
    print(json.dumps(state), flush=True)

def ready(name):
    url = f"http://127.0.0.1:{http.server_port}/{name}/v1"
    say(state="loading", model=name, replicas=1, kind="CPU")
    say(state="ready", model=name, base_url=url, replicas=1, kind="CPU", cache_tokens=2000)

spec = json.loads(sys.stdin.readline())
first, lost, last = [entry["name"] for entry in spec["entries"]]
assert spec["work"][first] > 0
http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=http.serve_forever, daemon=True).start()
ready(first)
say(state="failed", model=lost, text="the end of its log")
for line in sys.stdin:
    command = json.loads(line)
    assert command["retire"] == first, command
    ready(last)
"""


def test_models_come_and_go_in_one_pool_and_a_lost_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    real = subprocess.Popen

    def popen(command: list[str], **keywords: object) -> subprocess.Popen[str]:
        return real([sys.executable, str(script)], **keywords)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(pool_module.subprocess, "Popen", popen)
    given = Overrides(tasks=("niah_single_1",), lengths=(2048,), samples=2)
    plan = make_plan(load_suite("pocket"), given, None)
    options = ServerOptions()
    server = server_for(plan, options, tmp_path)
    rows = sweep(plan, tmp_path, server, limits_of(plan, options))
    assert [(row.ok, row.owed) for row in rows] == [(2, 0), (0, 2), (2, 0)]
    said = capsys.readouterr().err
    assert f"model {rows[1].cell.model} is lost, its samples stay owed: the end of its log" in said
    lines, _ = status(tmp_path)
    assert lines[0].startswith("cells 2/3  samples 4/6")
