"""What `run.py sweep`, `plan` and `doctor` share: their flags, and what these ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import (
    Flags,
    add_catalogue,
    add_pool,
    at_least,
    completes,
    engine_of,
    models_there_are,
    names,
    numbers,
    suites_there_are,
    tasks_there_are,
)
from core.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.doctor.here import Visit
    from benchmarks.estimate.estimate import ModelEstimate
    from benchmarks.plan import Plan
    from benchmarks.servers import ServerOptions

ENDPOINT_ONLY = ("requests-per-minute", "tokens-per-minute", "budget", "prices")


def add_sweep_flags(add: argparse.ArgumentParser) -> None:
    """Adds the suite and all flags, which `run.py plan` takes as well."""
    suite = add.add_argument(
        "suite", metavar="SUITE", help="a name from `run.py suites`, or a .toml file"
    )
    completes(suite, suites_there_are)
    _add_choice(add.add_argument_group("what to run, where not as the suite says"))
    run = add_server(add)
    run.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")
    run.add_argument("--out", type=Path, metavar="RUN_DIR", help="default: results/SUITE")


def add_server(add: argparse.ArgumentParser) -> Flags:
    """Adds the flags that say where to ask, and how; returns their last group, "the run"."""
    _add_endpoint(add.add_argument_group("an endpoint, in place of a pool"))
    _add_limits(add.add_argument_group("what an endpoint allows"))
    add_pool(add.add_argument_group("the pool"))
    run = add.add_argument_group("the run")
    run.add_argument("--concurrency", type=at_least(1), metavar="C", help="samples in work at once")
    run.add_argument(
        "--reply-timeout",
        type=at_least(1),
        default=1800,
        metavar="S",
        help="seconds that one reply may take in all; a request that takes longer has failed "
        "(default: 1800)",
    )
    run.add_argument(
        "--metrics",
        type=at_least(1),
        metavar="PORT",
        help="tell the sweep's state to Prometheus at http://127.0.0.1:PORT/metrics",
    )
    run.add_argument(
        "--accept",
        type=names,
        action="extend",
        default=[],
        metavar="CHECK",
        help="take what a check of `run.py doctor` refuses as it is; kept in the run and named in "
        "its reports. May be given again",
    )
    return run


def _add_choice(add: Flags) -> None:
    """Flags that change what the suite asks for."""
    models = add.add_argument(
        "--models", type=names, metavar="A,B", help="e.g. pocket-base,pocket-base@temperature=0.4"
    )
    add.add_argument(
        "--methods",
        type=names,
        metavar="A,B",
        help="e.g. memagent,gru_mem@exit_gate=false, or your own: FILE.py:CLASS",
    )
    tasks = add.add_argument(
        "--tasks", type=names, metavar="T,U", help="e.g. vt,vt@hops=2, or your own: FILE.py:NAME"
    )
    completes(models, models_there_are)
    completes(tasks, tasks_there_are)
    add.add_argument("--lengths", type=numbers, metavar="N,M", help="tokens, e.g. 8192,16384")
    add.add_argument("--samples", type=at_least(1), metavar="N", help="samples of every cell")
    add.add_argument("--draws", type=at_least(1), metavar="N", help="answers of every sample")
    add.add_argument("--seed", type=int, metavar="S", help="of the data and of the sampling")
    add_weights(add)


def add_weights(add: Flags) -> None:
    """Flags that say whose tokenizer, whose weights, and which catalogue."""
    add.add_argument("--tokenizer", metavar="DIR", help="folder with tokenizer.json")
    add.add_argument(
        "--checkpoint",
        type=_checkpoint,
        action="append",
        default=[],
        metavar="MODEL=DIR",
        help="take that model's weights from a folder, e.g. the --out of `run.py train`; "
        "may be given again",
    )
    add_catalogue(add)


def _add_endpoint(add: Flags) -> None:
    """Flags that say where to ask, and in which dialect."""
    add.add_argument(
        "--endpoint",
        metavar="URL",
        help="an OpenAI-compatible server's /v1 "
        "address; no pool is started, --models names what it serves",
    )
    add.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="the environment variable that holds the endpoint's key",
    )
    add.add_argument(
        "--plain-openai",
        action="store_true",
        help="leave out top_k and repetition_penalty, which OpenAI's own servers refuse",
    )
    add.add_argument(
        "--openai-reasoning",
        action="store_true",
        help="for OpenAI's reasoning models: max_completion_tokens in place of max_tokens, and no "
        "temperature, top_p, top_k or repetition_penalty, which they refuse",
    )
    add.add_argument("--azure-api-version", metavar="VERSION", help="speak Azure's dialect")
    add.add_argument(
        "--outage",
        type=at_least(1),
        default=600,
        metavar="S",
        help="seconds that an endpoint may be away before the sweep ends, to be gone on with "
        "later (default: 600); a pool of ours is waited for as long as it lives",
    )


def _add_limits(add: Flags) -> None:
    """Flags that say what an endpoint allows, and what may be spent at it."""
    add.add_argument(
        "--requests-per-minute",
        type=at_least(1),
        metavar="N",
        help="at an endpoint, at most; what its own headers say is obeyed without this flag",
    )
    add.add_argument(
        "--tokens-per-minute",
        type=at_least(1),
        metavar="N",
        help="at an endpoint, at most: prompts and replies",
    )
    add.add_argument(
        "--budget",
        type=_usd,
        metavar="USD",
        help="what the run may cost in all, never passed: it stops before, to be gone on with. "
        "Needs --prices",
    )
    add.add_argument(
        "--prices",
        type=Path,
        metavar="FILE.toml",
        help='the endpoint\'s prices: [models."NAME"] with input and output in USD for a million '
        "tokens. The ledger then shows what each cell cost",
    )


def plan_of(arguments: argparse.Namespace, *, dry: bool = False) -> tuple[Plan, Path]:
    """The plan that the flags ask for, and the folder of its run."""
    from benchmarks.plan import Overrides, make_plan
    from benchmarks.suite import load_suite

    suite = load_suite(arguments.suite)
    overrides = Overrides(
        models=arguments.models,
        methods=arguments.methods,
        tasks=arguments.tasks,
        lengths=arguments.lengths,
        samples=arguments.samples,
        draws=arguments.draws,
        seed=arguments.seed,
        endpoint=arguments.endpoint,
        tokenizer=arguments.tokenizer,
        catalogue=arguments.catalogue,
        engine=engine_of(arguments),
        checkpoints=dict(arguments.checkpoint),
        accept=tuple(arguments.accept),
        dry=dry,
    )
    plan = make_plan(suite, overrides, arguments.data)
    return plan, arguments.out or Path("results") / suite.name


def visit_of(
    arguments: argparse.Namespace,
    plan: Plan,
    run_dir: Path,
    estimates: Sequence[ModelEstimate],
) -> Visit:
    """What the checks that need no request look at."""
    from benchmarks.doctor.here import Visit

    endpoint, joins = arguments.endpoint is not None, arguments.ray_address is not None
    return Visit(plan, run_dir, estimates, endpoint=endpoint, joins=joins)


def server_options(arguments: argparse.Namespace, plan: Plan) -> ServerOptions:
    """Where to ask, and what it may cost.

    Raises:
        UsageError: flags that do not go together, or a model without a price.
    """
    from benchmarks.servers import ServerOptions
    from serving.limits.budget import Budget, price_of, read_prices

    if arguments.endpoint is None:
        for flag in ENDPOINT_ONLY:
            if getattr(arguments, flag.replace("-", "_")):
                raise UsageError(f"--{flag} is for an endpoint: give --endpoint URL with it")
    if arguments.budget is not None and arguments.prices is None:
        raise UsageError("--budget needs --prices FILE.toml, what the endpoint takes for tokens")
    prices = {}
    if arguments.prices is not None:
        known = read_prices(arguments.prices)
        names = {model.served_as for model in plan.models.values()}
        prices = {name: price_of(name, known, arguments.prices) for name in sorted(names)}
    return ServerOptions(
        endpoint=arguments.endpoint,
        api_key_env=arguments.api_key_env,
        plain_openai=arguments.plain_openai,
        azure_api_version=arguments.azure_api_version,
        ray_address=arguments.ray_address,
        concurrency=arguments.concurrency,
        reply_timeout_s=arguments.reply_timeout,
        outage_s=arguments.outage,
        deadline_s=arguments.deadline,
        openai_reasoning=arguments.openai_reasoning,
        requests_per_minute=arguments.requests_per_minute,
        tokens_per_minute=arguments.tokens_per_minute,
        budget=Budget(arguments.budget) if prices else None,
        prices=prices,
    )


def _checkpoint(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not (name and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL=DIR")
    return name, Path(folder)


def _usd(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of US dollars above 0")
    return value
