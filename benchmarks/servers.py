"""Where a sweep's models answer: a pool of them all, or somebody's endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.doctor.doctor import admitted, server_of
from benchmarks.plan import ModelPlan, Plan
from benchmarks.sweep import Answering, Limits, Server, Serving
from serving.api.outage import Patience
from serving.client import Client, ClientOptions
from serving.limits.budget import Budget, Price
from serving.limits.gate import FREE, Gate, Rates

ENDPOINT_CONCURRENCY = 32
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Flags of `run.py sweep` that say where to ask; none of them changes a result.

    `reply_timeout_s`: for one reply, all of it. `outage_s`: how long an endpoint may be away.
    `budget` and `prices`, by the name a model is served as: what an endpoint's requests cost.
    `longest_turns`: tokens, by the same names, for the probes that a sweep begins with.
    `deadline_s`: how long a model's replicas may take to start, their weights being there.
    """

    endpoint: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    plain_openai: bool = False
    openai_reasoning: bool = False
    azure_api_version: str | None = None
    ray_address: str | None = None
    concurrency: int | None = None
    reply_timeout_s: float = 1800.0
    outage_s: float = 600.0
    deadline_s: float = 900.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget: Budget | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    longest_turns: Mapping[str, int] = field(default_factory=dict)


def server_for(plan: Plan, options: ServerOptions, run_dir: Path) -> Server:
    """The server of a run's models. A pool's logs go to the run's folder."""
    if options.endpoint:
        return partial(_endpoint, plan, options)
    return partial(_pool, plan, options, run_dir)


@contextmanager
def _endpoint(plan: Plan, options: ServerOptions, work: Mapping[str, float]) -> Iterator[Serving]:
    """The server that the user runs. Its models take turns: its load is the user's limit."""
    turns = asyncio.Lock()
    rates = Rates(options.requests_per_minute, options.tokens_per_minute)

    @asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        """See `Answers`."""
        async with turns:
            price = options.prices.get(model.served_as, FREE)
            gate = Gate(rates, options.budget, price)
            client = endpoint_client(model, options, gate)
            longest = options.longest_turns.get(model.served_as)
            examined = partial(admitted, server_of(model, client, longest), plan.accepted)
            yield Answering(client, examined=examined)

    yield Serving(answers)


@contextmanager
def _pool(
    plan: Plan, options: ServerOptions, run_dir: Path, work: Mapping[str, float]
) -> Iterator[Serving]:
    """A pool of all models that owe something, gone when the context ends."""
    # Ray takes seconds to import, and an endpoint needs none of it.
    from serving.pool import Pool

    known = {model.served_as: model.entry for model in plan.models.values()}
    entries = [entry for name in work if (entry := known[name]) is not None]
    started = Pool(
        *entries,
        log_dir=run_dir / "logs",
        ray_address=options.ray_address,
        deadline_s=options.deadline_s,
    )

    @asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        """See `Answers`."""
        # No thread that waits: it would outlast Ctrl-C.
        while (ready := started.poll(model.served_as)) is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        try:
            asked = ClientOptions(
                url=ready.base_url,
                window_tokens=model.entry.window_tokens if model.entry else None,
                connections=_concurrency(model, options),
                reply_timeout_s=options.reply_timeout_s,
            )
            patience = Patience(alive=partial(started.check, model.served_as))
            yield Answering(Client(asked, model.tokenizer, patience), ready.cache_tokens)
        finally:
            started.retire(model.served_as)

    try:
        started.start(work)
        yield Serving(answers, started.health)
    finally:
        started.stop()


def endpoint_client(model: ModelPlan, options: ServerOptions, gate: Gate) -> Client:
    """What asks the user's server for a model."""
    return Client(
        ClientOptions(
            url=options.endpoint or "",
            key_env=options.api_key_env,
            plain_openai=options.plain_openai,
            openai_reasoning=options.openai_reasoning,
            azure_api_version=options.azure_api_version,
            connections=_concurrency(model, options),
            reply_timeout_s=options.reply_timeout_s,
        ),
        patience=Patience(outage_s=options.outage_s),
        gate=gate,
    )


def limits_of(plan: Plan, options: ServerOptions) -> dict[str, Limits]:
    """How much of each model's work is at its server at once."""
    return {
        name: Limits(concurrency=_concurrency(model, options))
        for name, model in plan.models.items()
    }


def _concurrency(model: ModelPlan, options: ServerOptions) -> int:
    default = model.entry.concurrency if model.entry else ENDPOINT_CONCURRENCY
    return options.concurrency or default
