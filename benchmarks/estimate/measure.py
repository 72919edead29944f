"""Measures how fast a pool of a model is, by rounds of real memory turns (rounds.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from agents.memagent import NO_MEMORY, UPDATE, MemAgent, MemAgentSettings
from benchmarks.estimate.rates import Rate, Rates
from benchmarks.estimate.rounds import Round, measured
from benchmarks.provenance import provenance
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
SECTIONS = 32
"""Of the haystack that prompts are made of."""


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
    prompts = _prompts(entry, tokenizer)
    budget = _settings(entry).reply_tokens
    async with client:
        await client.check(entry.name)
        rates = []
        for level in levels:
            play = partial(_play, client, entry.name, prompts, level)
            rates.append(await measured(play, level, turns * level, budget))
        return rates


async def _play(
    client: Client,
    model: str,
    prompts: Iterator[Message],
    in_flight: int,
    count: int,
    reply_tokens: int,
) -> Round:
    """`count` turns with so many in flight, each reply of exactly so many tokens."""
    asked = iter(list(islice(prompts, count)))
    turns: list[Turn] = []

    async def worker() -> None:
        for message in asked:
            turns.append(
                await client.turn(
                    model,
                    [message],
                    max_tokens=reply_tokens,
                    sampling=SAMPLING,
                    tag="memory",
                    whole=True,
                )
            )

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(worker())
    seconds = time.monotonic() - began
    tokens = [(turn.prompt_tokens, turn.completion_tokens) for turn in turns]
    return Round(seconds, count, sum(p for p, _ in tokens), sum(r for _, r in tokens))


def _prompts(entry: ModelEntry, tokenizer: Tokenizer) -> Iterator[Message]:
    """Memory turns over the sections of a needle haystack, again and again. Each asks under a
    number of its own, which stands before the section, so that no cache spares reading it."""
    chunk = _settings(entry).chunk_tokens
    sample = find_task(TASK).sample(
        Coordinates(0, chunk * SECTIONS, 1), Materials(tokenizer, Corpora(None))
    )
    sections = list(sample.problem.context.chunks(tokenizer, chunk))[: SECTIONS - 2]
    for number, section in enumerate(cycle(sections)):
        question = f"{sample.problem.question} ({number})"
        content = UPDATE.format(prompt=question, memory=NO_MEMORY, chunk=section.text)
        yield Message("user", content, [section.known])


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
