"""Measures how fast a pool of a model is: real memory turns, in two shapes.

    read    replies of one token: the time is the prompts'
    write   the same kind of turns with the whole reply budget: what is left is the replies'

Every prompt holds another section, so that no cache spares any of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agents.memagent import NO_MEMORY, UPDATE, MemAgent, MemAgentSettings
from benchmarks.estimate.rates import Rate, Rates
from benchmarks.provenance import provenance
from core.errors import ServerDied
from core.methods import method_settings
from core.tokens import Tokenizer
from core.types import Message, Sampling, Turn
from serving.catalogue import ModelEntry
from serving.client import Client, ClientOptions
from serving.pool import Pool
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

LOGS = Path("results") / "rates" / "logs"
TASK = "niah_multikey_2"
SAMPLING = Sampling(temperature=1.0, top_p=1.0)


def measure_model(
    entry: ModelEntry,
    in_flight: Sequence[int],
    turns_a_place: int,
    *,
    ray_address: str | None = None,
) -> Rates:
    """Starts the pool, measures it with each number of requests in flight, stops it.

    Raises:
        HarnessError: the pool does not start, or a request fails.
    """
    tokenizer = Tokenizer.load(entry.location, entry.revision)
    started = time.monotonic()
    with Pool(entry, log_dir=LOGS, ray_address=ray_address) as pool:
        loading_s = time.monotonic() - started
        ready = pool.wait()
        client = Client(
            ClientOptions(
                pool.base_url, window_tokens=entry.window_tokens, connections=max(in_flight)
            ),
            tokenizer,
        )
        levels = sorted(set(in_flight))
        rates = asyncio.run(_rates(client, entry, tokenizer, levels, turns_a_place))
        return Rates(
            model=entry.name,
            source=entry.source,
            device=_device(ready.kind),
            replicas=ready.replicas,
            loading_s=round(loading_s, 1),
            measured=datetime.now(UTC).date().isoformat(),
            rates=tuple(rates),
        )


async def _rates(
    client: Client, entry: ModelEntry, tokenizer: Tokenizer, levels: Sequence[int], turns: int
) -> list[Rate]:
    most = max(levels) + sum(2 * turns * level for level in levels)
    prompts = _prompts(entry, tokenizer, most)
    budget = _settings(entry).reply_tokens
    rates = []
    async with client:
        await client.check(entry.name)
        # The first requests pay for what is compiled and allocated once.
        await _timed(client, entry, prompts, max(levels), max(levels), 1)
        for level in levels:
            count = turns * level
            read_s, read = await _timed(client, entry, prompts, count, level, 1)
            per_s = sum(turn.prompt_tokens for turn in read) / read_s
            write_s, written = await _timed(client, entry, prompts, count, level, budget)
            rest_s = write_s - sum(turn.prompt_tokens for turn in written) / per_s
            if rest_s <= 0:
                raise ServerDied(
                    f"{entry.name}: {count} turns with replies took {write_s:.2f} s, no longer "
                    "than their prompts alone; something else used the machine, or --turns is "
                    "too small: measure again"
                )
            replies = sum(turn.completion_tokens for turn in written)
            rates.append(
                Rate(
                    in_flight=level,
                    prompt_tokens_per_s=round(per_s, 1),
                    reply_tokens_per_s=round(replies / rest_s, 1),
                )
            )
    return rates


async def _timed(
    client: Client,
    entry: ModelEntry,
    prompts: Iterator[Message],
    count: int,
    in_flight: int,
    max_tokens: int,
) -> tuple[float, list[Turn]]:
    """Seconds that `count` turns took with so many in flight, and the turns."""
    asked = iter([next(prompts) for _ in range(count)])
    turns: list[Turn] = []

    async def worker() -> None:
        for message in asked:
            turns.append(
                await client.turn(
                    entry.name, [message], max_tokens=max_tokens, sampling=SAMPLING, tag="memory"
                )
            )

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(worker())
    return time.monotonic() - began, turns


def _prompts(entry: ModelEntry, tokenizer: Tokenizer, count: int) -> Iterator[Message]:
    """Memory turns over a needle haystack, each with another section."""
    chunk = _settings(entry).chunk_tokens
    sample = find_task(TASK).sample(
        Coordinates(0, chunk * (count + 2), 1), Materials(tokenizer, Corpora(None))
    )
    question = sample.problem.question
    for section in sample.problem.context.chunks(tokenizer, chunk):
        yield Message("user", UPDATE.format(prompt=question, memory=NO_MEMORY, chunk=section.text))


def _settings(entry: ModelEntry) -> MemAgentSettings:
    return MemAgentSettings(
        **method_settings(MemAgent, "memagent", entry.methods.get("memagent", {}))  # type: ignore[arg-type]
    )


def _device(kind: str) -> str:
    machine = provenance([])["machine"]
    assert isinstance(machine, dict)
    gpus = machine["gpus"]
    assert isinstance(gpus, list)
    if kind == "GPU" and gpus:
        return f"{len(gpus)} x {gpus[0]}"
    return f"{machine['cpus']} CPUs"
