"""What a turn costs a sweep's own process, beside a bare loop that posts the same bodies.

    python perf/client.py --tokenizer DIR [--concurrency 64,512,2048]

A null server, a process of its own, answers every request at once. Against it run, each in a new
process: MemAgent's sweep with all its parts (client, commit, display), and a bare aiohttp loop.
Printed, all from one run:

* CPU a turn beside tokenizing, over the bare loop's; the limit is 3.
* Tokenizing a turn, its share of the context included, over encoding its rendered prompt once;
  the limit is 1.3.
* How late the event loop wakes a timer while samples of 3.5M tokens stream and while the bare loop
  posts, 99.9th percentiles.

CPU times; other work still shows in them, through the caches. Ends with code 1 beyond a limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
# Its threads would do work that no thread of ours is charged with.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import aiohttp

from agents.memagent import MemAgent, MemAgentSettings
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell
from benchmarks.sweep import Answering, Limits, Serving, sweep
from commands.flags import numbers
from core.errors import ServerDied
from core.rollout import rollout
from core.tokens import Tokenizer
from core.types import Message, Sample, Sampling, Turn
from serving.api.connection import allow_files
from serving.api.wire import Asked, request_body
from serving.client import Client, ClientOptions
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

TASK = find_task("niah_multikey_2")
MEMORY = "The special magic number is: 1234567. " * 10
REPLY = {"choices": [{"text": MEMORY, "finish_reason": "stop"}], "usage": None}
HELD_TOKENS = 3_500_000
HELD_S = 20.0
HELD_CONCURRENCY = 64
TICK_S = 0.001
TIMED = 20
ROUNDS = 3
CPU_LIMIT = 3.0
TOKENIZING_LIMIT = 1.3


def main() -> int:
    """Runs the null server and every measurement, and prints the ratios."""
    arguments = _arguments()
    if arguments.measure:
        name, url = arguments.measure
        print(json.dumps(MEASURES[name](arguments, url)))
        return 0
    with _null_server() as url:
        kept = True
        print("concurrency   turns   sweep us   bare us   ratio   tokenizing ratio")
        for concurrency in arguments.concurrency:
            least = _least(url, arguments, concurrency)
            ours, bare = least["sweep"] - least["tokenizing"], least["bare"]
            cpu, tokenizing = ours / bare, least["tokenizing"] / least["once"]
            kept = kept and cpu <= CPU_LIMIT and tokenizing <= TOKENIZING_LIMIT
            print(
                f"{concurrency:11} {least['turns']:7.0f} {ours:10.0f} {bare:9.0f} "
                f"{cpu:7.2f} {tokenizing:18.2f}",
                flush=True,
            )
        held, bare = (_child(n, url, arguments, 1)["ms"] for n in ("held", "bare_held"))
    print(f"event loop held, 99.9th percentile: {held:.1f} ms while samples of {HELD_TOKENS:,}")
    print(f"tokens stream, bare loop {bare:.1f} ms: ratio {held / bare:.2f}")
    print("within the limits" if kept else "BEYOND A LIMIT")
    return 0 if kept else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket-base"))
    parser.add_argument("--chunk-tokens", type=int, default=5000)
    parser.add_argument("--chunks", type=int, default=2, help="of a sample")
    parser.add_argument("--concurrency", type=numbers, default=(64, 512, 2048))
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "URL"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _least(url: str, arguments: argparse.Namespace, concurrency: int) -> dict[str, float]:
    """The least of several rounds of each measurement: what other work adds comes and goes."""
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in ("sweep", "bare"):
            for key, value in _child(name, url, arguments, concurrency).items():
                least[key] = min(value, least.get(key, value))
    return least


def _child(
    name: str, url: str, arguments: argparse.Namespace, concurrency: int
) -> dict[str, float]:
    flags = {"chunk-tokens": arguments.chunk_tokens, "chunks": arguments.chunks}
    flags |= {"tokenizer": arguments.tokenizer, "concurrency": concurrency}
    command = [sys.executable, __file__, "--measure", name, url]
    command += [str(part) for key, value in flags.items() for part in (f"--{key}", value)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


# -- the null server ---------------------------------------------------------------------------


class _Null(asyncio.Protocol):
    """Reads requests by their lengths and answers each with the same reply."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end]).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            size = end + 4 + int(length or 0)
            if len(self.data) < size:
                return
            del self.data[:size]
            reply = {"data": [{"id": "m"}]} if head.startswith(b"get") else REPLY
            body = json.dumps(reply).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )


@contextlib.contextmanager
def _null_server() -> Iterator[str]:
    command = [sys.executable, __file__, "--measure", "null", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def _serve(arguments: argparse.Namespace, url: str) -> None:
    allow_files(1 << 12)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Null, "127.0.0.1", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(serve())


# -- the sweep ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A task whose samples are all the one that is there already."""

    one: Sample
    name: str = TASK.name
    summary: str = TASK.summary
    scorer: Any = TASK.scorer

    def sample(self, coordinates: Coordinates, materials: Materials) -> Sample:
        return replace(self.one, id=f"id{coordinates.index}", index=coordinates.index)


def _sample(tokenizer: Tokenizer, tokens: int) -> Sample:
    made = TASK.sample(Coordinates(0, tokens, 1), Materials(tokenizer, Corpora(None)))
    return replace(made, evidence=())


def _plan(tokenizer: Tokenizer, sample: Sample, samples: int, chunk_tokens: int) -> Plan:
    methods: dict[str, Any] = {"memagent": {"chunk_tokens": chunk_tokens, "reply_tokens": 1024}}
    model = ModelPlan("m", "m", None, tokenizer, Sampling(seed=1), methods)
    cells = (Cell(0, TASK.name, 0, "memagent", "m", samples),)
    task: Any = Made(sample)
    return Plan("perf", 1, cells, {TASK.name: task}, {"m": model}, Corpora(None), {})


def _swept(plan: Plan, client: Client, concurrency: int) -> None:
    @contextlib.asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        yield Answering(client)

    @contextlib.contextmanager
    def server(work: Mapping[str, float]) -> Iterator[Serving]:
        yield Serving(answers)

    with tempfile.TemporaryDirectory() as folder:
        sweep(plan, Path(folder), server, {"m": Limits(concurrency)})


class Metered(Client):
    """A client that notes the process's CPU time while it is open, which is all of a model's part
    of a sweep."""

    cpu_s = 0.0

    async def __aenter__(self) -> Metered:
        self.cpu_s -= time.process_time()
        await super().__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await super().__aexit__(*error)
        self.cpu_s += time.process_time()


def _sweep(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    """Microseconds of CPU a turn: of a `sweep`, of all its `tokenizing`, and of rendering each
    prompt `once`."""
    (concurrency,) = arguments.concurrency
    tokenizer = Tokenizer.load(arguments.tokenizer)
    size = arguments.chunk_tokens
    sample = _sample(tokenizer, arguments.chunks * size)
    prompts = _prompts(tokenizer, sample, size)
    samples = max(concurrency, 192)
    for prompt in prompts:  # what is made once is made now
        tokenizer.render_chat([Message("user", prompt.content)])
    client = Metered(ClientOptions(url, connections=concurrency), tokenizer)
    _swept(_plan(tokenizer, sample, samples, size), client, concurrency)

    def tokenized() -> None:
        deque(sample.problem.context.chunks(tokenizer, size), maxlen=0)
        for prompt in prompts:
            tokenizer.render_chat([prompt])

    def rendered() -> None:
        for prompt in prompts:
            tokenizer.render_chat([Message("user", prompt.content)])

    turns = len(prompts)
    return {
        "turns": samples * turns,
        "sweep": client.cpu_s / samples / turns * 1e6,
        # Timed apart: timers would cost as much as what they measure.
        "tokenizing": _cpu_s(tokenized) / turns * 1e6,
        "once": _cpu_s(rendered) / turns * 1e6,
    }


def _cpu_s(work: Callable[[], None]) -> float:
    """CPU seconds of one call: the least mean of several rounds."""
    means = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(TIMED):
            work()
        means.append((time.process_time() - started) / TIMED)
    return min(means)


def _prompts(tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[Message]:
    """The prompts of one sample's turns."""
    prompts: list[Message] = []

    async def chat(messages: Any, *, tag: str, **rest: Any) -> Turn:
        prompts.append(messages[0])
        return Turn(tag, (), MEMORY, "stop", 0, 0, 0.0)

    method = MemAgent(tokenizer, MemAgentSettings(chunk_tokens=chunk_tokens))
    asyncio.run(rollout(sample, method, chat))
    return prompts


# -- the bare loop -----------------------------------------------------------------------------


def _bodies(arguments: argparse.Namespace) -> list[bytes]:
    tokenizer = Tokenizer.load(arguments.tokenizer)
    sample = _sample(tokenizer, arguments.chunks * arguments.chunk_tokens)
    prompts = _prompts(tokenizer, sample, arguments.chunk_tokens)
    asked, sampling = Asked(max_tokens=1024), Sampling(seed=1)
    ids = [tokenizer.render_chat([prompt]) for prompt in prompts]
    return [request_body("m", one, asked, sampling, dialect="vllm") for one in ids]


async def _post(url: str, bodies: Iterator[bytes], concurrency: int) -> None:
    allow_files(concurrency)
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def worker() -> None:
            for body in bodies:
                async with session.post(url + "/completions", data=body) as response:
                    await response.read()

        await asyncio.gather(*(worker() for _ in range(concurrency)))


def _bare(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    (concurrency,) = arguments.concurrency
    bodies = _bodies(arguments)
    turns = max(concurrency, 192) * len(bodies)
    started = time.process_time()
    asyncio.run(_post(url, islice(cycle(bodies), turns), concurrency))
    return {"bare": (time.process_time() - started) / turns * 1e6}


# -- how long the event loop is held -----------------------------------------------------------


class Ticks:
    """How late a timer wakes, in seconds, one after another."""

    def __init__(self) -> None:
        self.late_s: list[float] = []

    async def run(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.late_s.append(time.perf_counter() - started - TICK_S)

    def ms(self) -> dict[str, float]:
        return {"ms": sorted(self.late_s)[int(0.999 * len(self.late_s))] * 1e3}


class Ticking(Client):
    """A client that ticks while it is open, and ends the sweep after HELD_S."""

    def __init__(self, url: str, tokenizer: Tokenizer) -> None:
        super().__init__(ClientOptions(url, connections=HELD_CONCURRENCY), tokenizer)
        self.ticks = Ticks()

    async def __aenter__(self) -> Ticking:
        self.end = time.monotonic() + HELD_S
        self.task = asyncio.create_task(self.ticks.run())
        await super().__aenter__()
        return self

    async def turn(self, *arguments: Any, **rest: Any) -> Turn:
        if time.monotonic() > self.end:
            self.task.cancel()
            raise ServerDied("enough")
        return await super().turn(*arguments, **rest)


def _held(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    tokenizer = Tokenizer.load(arguments.tokenizer)
    sample = _sample(tokenizer, HELD_TOKENS)
    plan = _plan(tokenizer, sample, HELD_CONCURRENCY, arguments.chunk_tokens)
    client = Ticking(url, tokenizer)
    with contextlib.suppress(ServerDied):
        _swept(plan, client, HELD_CONCURRENCY)
    return client.ticks.ms()


def _bare_held(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    ticks = Ticks()
    bodies = _bodies(arguments)

    async def run() -> None:
        task = asyncio.create_task(ticks.run())
        end = time.monotonic() + HELD_S
        until = takewhile(lambda body: time.monotonic() < end, cycle(bodies))
        await _post(url, until, HELD_CONCURRENCY)
        task.cancel()

    asyncio.run(run())
    return ticks.ms()


MEASURES: dict[str, Any] = {"null": _serve, "sweep": _sweep, "bare": _bare}
MEASURES |= {"held": _held, "bare_held": _bare_held}

if __name__ == "__main__":
    sys.exit(main())
