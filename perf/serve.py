"""Requests a second of the pocket's pool: the model in the engine's process, against Ray's
default of a process of its own (serving/callbacks.py). Prints the ratio of the two, measured
in one run.

    python perf/serve.py [--requests 600]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agents.memagent import NO_MEMORY, UPDATE
from core.tokens import Tokenizer
from core.types import GREEDY, Message
from serving.catalogue import ModelEntry, find_model
from serving.client import Client, ClientOptions
from serving.pool import Pool
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

CHUNK = 512


def prompts(tokenizer: Tokenizer, count: int) -> list[Message]:
    """Memory turns over a needle haystack, each with another section."""
    sample = find_task("niah_multikey_2").sample(
        Coordinates(0, CHUNK * (count + 2), 1), Materials(tokenizer, Corpora(None))
    )
    sections = sample.problem.context.chunks(tokenizer, CHUNK)
    question = sample.problem.question
    return [
        Message("user", UPDATE.format(prompt=question, memory=NO_MEMORY, chunk=section.text))
        for section, _ in zip(sections, range(count), strict=False)
    ]


async def rate(url: str, entry: ModelEntry, tokenizer: Tokenizer, asked: list[Message]) -> float:
    """Requests a second with 64 in flight: the second half of `asked` counts."""
    options = ClientOptions(url, connections=64)

    async with Client(options, tokenizer) as client:

        async def worker(queue: list[Message]) -> None:
            while queue:
                message = queue.pop()
                await client.turn(entry.name, [message], max_tokens=64, sampling=GREEDY, tag="m")

        for half in (asked[::2], asked[1::2]):
            queue, started = list(half), time.perf_counter()
            await asyncio.gather(*(worker(queue) for _ in range(64)))
            seconds = time.perf_counter() - started
    return len(asked[1::2]) / seconds


def main() -> None:
    """Measures both, reference first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=600)
    count = parser.parse_args().requests
    entry = find_model("pocket-base")
    tokenizer = Tokenizer.load(entry.location)
    asked = prompts(tokenizer, count)
    rates = {}
    for engine_process in ("two", "one"):
        cpu = entry.cpu.model_copy(update={"engine_process": engine_process})
        variant = entry.model_copy(update={"cpu": cpu})
        with tempfile.TemporaryDirectory() as logs, Pool(variant, log_dir=Path(logs)) as pool:
            rates[engine_process] = asyncio.run(rate(pool.base_url, entry, tokenizer, asked))
        print(f"engine and model in {engine_process}: {rates[engine_process]:.1f} requests/s")
    print(f"ratio one / two: {rates['one'] / rates['two']:.2f}")


if __name__ == "__main__":
    main()
