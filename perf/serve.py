"""Requests a second of the pocket's pool with one of its CPU settings varied, and the ratio, in
one run: the model in the engine's process, against Ray's default of a process of its own
(serving/callbacks.py); or float32 against bfloat16, of which `cpu_dtype` takes one.

    python perf/serve.py [--requests 600] [--vary dtype]
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
VALUES = {"engine_process": ("two", "one"), "dtype": ("bfloat16", "float32")}
"""Of each setting the reference, and the other."""


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
    parser.add_argument("--vary", choices=sorted(VALUES), default="engine_process")
    arguments = parser.parse_args()
    reference, other = VALUES[arguments.vary]
    entry = find_model("pocket-base")
    tokenizer = Tokenizer.load(entry.location)
    asked = prompts(tokenizer, arguments.requests)
    rates = {}
    for value in (reference, other):
        cpu = entry.cpu.model_copy(update={arguments.vary: value})
        variant = entry.model_copy(update={"cpu": cpu})
        with tempfile.TemporaryDirectory() as logs, Pool(variant, log_dir=Path(logs)) as pool:
            rates[value] = asyncio.run(rate(pool.base_url, entry, tokenizer, asked))
        print(f"{arguments.vary} {value}: {rates[value]:.1f} requests/s")
    print(f"ratio {other} / {reference}: {rates[other] / rates[reference]:.2f}")


if __name__ == "__main__":
    main()
