"""Where a sweep's models answer: a pool of its own for each, or somebody's endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plan import ModelPlan, Plan
from benchmarks.sweep import Limits, Server
from serving.api.outage import Patience
from serving.client import Client, ClientOptions

ENDPOINT_CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Flags of `run.py sweep` that say where to ask; none of them changes a result.

    `reply_timeout_s`: for one reply, all of it. `outage_s`: how long an endpoint may be away.
    """

    endpoint: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    plain_openai: bool = False
    azure_api_version: str | None = None
    ray_address: str | None = None
    concurrency: int | None = None
    reply_timeout_s: float = 1800.0
    outage_s: float = 600.0


def server_for(options: ServerOptions, run_dir: Path) -> Server:
    """The server of each model of a run. A pool's logs go to the run's folder."""

    @contextmanager
    def endpoint(model: ModelPlan) -> Iterator[Client]:
        """A client of the server that the user runs."""
        yield Client(
            ClientOptions(
                url=options.endpoint or "",
                key_env=options.api_key_env,
                plain_openai=options.plain_openai,
                azure_api_version=options.azure_api_version,
                connections=_concurrency(model, options),
                reply_timeout_s=options.reply_timeout_s,
            ),
            patience=Patience(outage_s=options.outage_s),
        )

    @contextmanager
    def pool(model: ModelPlan) -> Iterator[Client]:
        """A pool of the model alone, on the whole machine, gone when the context ends."""
        # Ray takes seconds to import, and an endpoint needs none of it.
        from serving.pool import Pool

        if model.entry is None:
            raise ValueError(f"model {model.name} is not in the catalogue")
        with Pool(
            model.entry, ray_address=options.ray_address, log_dir=run_dir / "logs"
        ) as started:
            yield Client(
                ClientOptions(
                    url=started.base_url,
                    window_tokens=model.entry.window_tokens,
                    connections=_concurrency(model, options),
                    reply_timeout_s=options.reply_timeout_s,
                ),
                model.tokenizer,
                Patience(alive=started.check),
            )

    return endpoint if options.endpoint else pool


def limits_of(plan: Plan, options: ServerOptions) -> dict[str, Limits]:
    """How much of each model's work is at its server at once."""
    return {
        name: Limits(concurrency=_concurrency(model, options))
        for name, model in plan.models.items()
    }


def _concurrency(model: ModelPlan, options: ServerOptions) -> int:
    default = model.entry.concurrency if model.entry else ENDPOINT_CONCURRENCY
    return options.concurrency or default
