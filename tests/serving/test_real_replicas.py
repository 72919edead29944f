"""Replicas asked one by one, through real Ray actors shaped as Serve's are inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from serving.app import PORT_NAMES, head_environment
from serving.catalogue import REPOSITORY
from serving.leftovers import MARK, clear_away, new_folder
from serving.ports import free_ports

pytestmark = pytest.mark.pool

PROGRAM = """
import asyncio, json, os, sys, threading, time
from types import SimpleNamespace
import ray
from serving.process import replicas

class Server:
    def __init__(self, tokens, stuck):
        self.stuck = stuck
        cache = SimpleNamespace(kv_cache_size_tokens=tokens)
        config = SimpleNamespace(cache_config=cache)
        self.engine = SimpleNamespace(_engine_client=SimpleNamespace(vllm_config=config))

    async def is_sleeping(self):
        await asyncio.sleep(600 if self.stuck else 0)
        return False

@ray.remote(num_cpus=0)
class Replica:
    def __init__(self, tokens, stuck):
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        wrapper = SimpleNamespace(user_callable=Server(tokens, stuck), event_loop=loop)
        self._replica_impl = SimpleNamespace(_user_callable_wrapper=wrapper)

    async def process(self):  # an actor of coroutines, as Serve's
        return os.getpid()

ray.init(include_dashboard=False, _temp_dir=sys.argv[1], _node_ip_address="127.0.0.1",
         object_store_memory=100 << 20, log_to_driver=False, num_cpus=2)
def start(name, *arguments):
    actor = Replica.options(name=name, namespace="serve", lifetime="detached").remote(*arguments)
    ray.get(actor.process.remote())
    return actor
good = start("SERVE_REPLICA::app#LLMServer:m#1", 1000, False)
stuck = start("SERVE_REPLICA::app#LLMServer:m#2", 500, True)
other = start("SERVE_REPLICA::other#LLMServer:m#3", 7, False)
told = {"tokens": replicas.cache_tokens("app"), "first": replicas.unanswered_s("app")}
time.sleep(1.0)
told["then"] = replicas.unanswered_s("app")
replicas.kill("SERVE_REPLICA::app#LLMServer:m#2")
deadline = time.monotonic() + 60
while len(told.get("left", "..")) != 1 and time.monotonic() < deadline:
    told["left"] = replicas.unanswered_s("app")
told["none"] = replicas.cache_tokens("nobody")
print(json.dumps(told), flush=True)
ray.shutdown()
"""


def test_replicas_tell_their_cache_and_a_stuck_engine_is_found_and_ended() -> None:
    folder = new_folder()
    ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
    environment = os.environ | head_environment(ports, folder, direct=False) | {MARK: str(folder)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder)],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=environment,
            check=False,
        )
    finally:
        clear_away(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    good, stuck = (f"SERVE_REPLICA::app#LLMServer:m#{i}" for i in (1, 2))
    assert told["tokens"] == 1500
    assert told["first"] == {good: 0.0, stuck: 0.0}
    assert told["then"][good] == 0.0
    assert told["then"][stuck] >= 1.0
    assert set(told["left"]) == {good}
    assert told["none"] is None
