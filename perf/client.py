"""What a turn costs a sweep's own process, beside a bare loop that posts the same bodies.

    python perf/client.py --tokenizer DIR [--concurrency 64,512,2048]

A null server, a process of its own, answers every request at once. Against it run, each in a new
process: MemAgent's sweep with all its parts (client, commit, display), and a bare aiohttp loop.
Printed, all from one run:

* CPU a turn beside tokenizing, over the bare loop's; the limit is 3. It is that of a sweep whose
  chunks and prompts were tokenized before it began, and are handed out where the tokenizer would
  be called (`Context.chunks`, `Tokenizer.render_chat`): what is left is the rest, and nothing is
  subtracted. Of its parts, what it takes less without each, at the first concurrency.
* Tokenizing a turn, its share of the context included, over encoding its rendered prompt once;
  the limit is 1.3.
* How late the event loop wakes a timer while samples of 3.5M tokens stream, while they stream with
  their ids known, and while the bare loop posts, 99.9th percentiles.

CPU times; other work still shows in them, through the caches. Ends with code 1 beyond a limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pkgutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
# Its threads would do work that no thread of ours is charged with.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import aiohttp

from commands.flags import numbers
from core.errors import ServerDied
from core.tokens import Tokenizer
from core.types import Message, Sample, Sampling, Turn
from perf.null.server import null_server
from perf.null.sweep import made_sample, plan_of, prompts_of, swept, tokenized_sample
from serving.api.connection import allow_files
from serving.api.wire import Asked, request_body
from serving.client import Client, ClientOptions

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
    worst = 0.0
    with null_server() as url:
        print("concurrency   turns   beside tokenizing us   bare us   ratio")
        for concurrency in arguments.concurrency:
            least = _least(("rest", "bare"), url, arguments, concurrency)
            worst = max(worst, ratio := least["rest"] / least["bare"])
            print(
                f"{concurrency:11} {least['turns']:7.0f} {least['rest']:22.0f} "
                f"{least['bare']:9.0f} {ratio:7.2f}",
                flush=True,
            )
        _print_parts(url, arguments)
        least = _least(("tokenizing",), url, arguments, 1)
        tokenizing = least["tokenizing"] / least["once"]
        print(
            f"tokenizing a turn {least['tokenizing']:.0f} us, its rendered prompt once "
            f"{least['once']:.0f} us: ratio {tokenizing:.2f}"
        )
        held = {name: _child(name, url, arguments, 1)["ms"] for name in HELD}
    print("event loop held, 99.9th percentile: " + ", ".join(f"{n} {held[n]:.1f} ms" for n in HELD))
    kept = worst <= CPU_LIMIT and tokenizing <= TOKENIZING_LIMIT
    print("within the limits" if kept else "BEYOND A LIMIT")
    return 0 if kept else 1


def _print_parts(url: str, arguments: argparse.Namespace) -> None:
    concurrency = arguments.concurrency[0]
    names = {part: f"without {part}" for part in PARTS}
    least = _least(("rest", *names.values()), url, arguments, concurrency)
    told = [f"{part} {least['rest'] - least[name]:.0f}" for part, name in names.items()]
    print(f"us of it at concurrency {concurrency}: {', '.join(told)}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket-base"))
    parser.add_argument("--chunk-tokens", type=int, default=5000)
    parser.add_argument("--chunks", type=int, default=26, help="of a sample")
    parser.add_argument("--concurrency", type=numbers, default=(64, 512, 2048))
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "URL"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _least(
    names: Sequence[str], url: str, arguments: argparse.Namespace, concurrency: int
) -> dict[str, float]:
    """The least of several rounds of each measurement: what other work adds comes and goes."""
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in names:
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


# -- CPU a turn --------------------------------------------------------------------------------


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


def _rest(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    """Microseconds of CPU a turn of a sweep that tokenizes nothing."""
    (concurrency,) = arguments.concurrency
    size = arguments.chunk_tokens
    tokenizer, sample = tokenized_sample(arguments.tokenizer, size, arguments.chunks)
    client = Metered(ClientOptions(url, connections=concurrency), tokenizer)
    swept(plan_of(tokenizer, sample, concurrency, size), client, concurrency)
    turns = concurrency * len(tokenizer.recorded)
    return {"turns": turns, "rest": client.cpu_s / turns * 1e6}


def _kept(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose second argument decides what it returns, which is kept."""
    known: dict[int, Any] = {}

    def kept(first: Any, second: Any, *others: Any, **rest: Any) -> Any:
        if id(second) not in known:
            known[id(second)] = real(first, second, *others, **rest)
        return known[id(second)]

    return kept


def _nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: ""


def _read_once(real: Callable[..., Any]) -> Callable[..., Any]:
    known: list[Any] = []

    def read(*arguments: Any, **rest: Any) -> Any:
        if not known:
            known.append(real(*arguments, **rest))
        return known[0]

    return read


def _here(real: Callable[..., Any]) -> Callable[..., Any]:
    async def items(found: Iterator[Any]) -> AsyncIterator[Any]:
        for item in found:
            yield item

    return items


PARTS = {
    "commit": ("benchmarks.store.Store.add_turn", _nothing),
    "hash of the request": ("benchmarks.stored_chat.request_hash", _nothing),
    "thread for the chunk": ("agents.memagent.in_thread", _here),
    "body": ("serving.client.request_body", _kept),
    "reading the reply": ("serving.client.read_reply", _read_once),
}


def _without(part: str, arguments: argparse.Namespace, url: str) -> dict[str, float]:
    target, replaced = PARTS[part]
    with patch(target, replaced(pkgutil.resolve_name(target))):
        return {f"without {part}": _rest(arguments, url)["rest"]}


def _tokenizing(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    """Microseconds of CPU a turn: of all its `tokenizing`, and of rendering its prompt `once`."""
    tokenizer = Tokenizer.load(arguments.tokenizer)
    size = arguments.chunk_tokens
    sample = made_sample(tokenizer, arguments.chunks * size)
    prompts = prompts_of(tokenizer, sample, size)

    def tokenized() -> None:
        deque(sample.problem.context.chunks(tokenizer, size), maxlen=0)
        for prompt in prompts:
            tokenizer.render_chat([prompt])

    def rendered() -> None:
        for prompt in prompts:
            tokenizer.render_chat([Message("user", prompt.content)])

    rendered()  # what is made once is made now
    return {
        "tokenizing": _cpu_s(tokenized) / len(prompts) * 1e6,
        "once": _cpu_s(rendered) / len(prompts) * 1e6,
    }


def _cpu_s(work: Callable[[], None]) -> float:
    """CPU seconds of one call: the least of several."""
    spent = []
    for _ in range(TIMED):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return min(spent)


# -- the bare loop -----------------------------------------------------------------------------


def _bodies(arguments: argparse.Namespace) -> list[bytes]:
    size = arguments.chunk_tokens
    tokenizer, _ = tokenized_sample(arguments.tokenizer, size, arguments.chunks)
    asked, sampling = Asked(max_tokens=1024), Sampling(seed=1)
    return [
        request_body("m", ids, asked, sampling, dialect="vllm")
        for ids in tokenizer.recorded.values()
    ]


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
    turns = concurrency * len(bodies)
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


def _streamed(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    tokenizer = Tokenizer.load(arguments.tokenizer)
    return _ticked(arguments, url, tokenizer, made_sample(tokenizer, HELD_TOKENS))


def _known(arguments: argparse.Namespace, url: str) -> dict[str, float]:
    size, chunks = arguments.chunk_tokens, arguments.chunks
    repeats = HELD_TOKENS // (chunks * size)
    made = tokenized_sample(arguments.tokenizer, size, chunks, repeats=repeats)
    return _ticked(arguments, url, *made)


def _ticked(
    arguments: argparse.Namespace, url: str, tokenizer: Tokenizer, sample: Sample
) -> dict[str, float]:
    plan = plan_of(tokenizer, sample, HELD_CONCURRENCY, arguments.chunk_tokens)
    client = Ticking(url, tokenizer)
    with contextlib.suppress(ServerDied):
        swept(plan, client, HELD_CONCURRENCY)
    return client.ticks.ms()


def _bare_ticked(arguments: argparse.Namespace, url: str) -> dict[str, float]:
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


HELD = ("streamed", "with ids known", "bare loop")
MEASURES: dict[str, Any] = {"rest": _rest, "bare": _bare, "tokenizing": _tokenizing}
MEASURES |= {f"without {part}": partial(_without, part) for part in PARTS}
MEASURES |= dict(zip(HELD, (_streamed, _known, _bare_ticked), strict=True))

if __name__ == "__main__":
    sys.exit(main())
