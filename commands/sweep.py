"""`run.py sweep` and `run.py status`: run a suite, or go on with it, and how that goes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import (
    DONE,
    INCOMPLETE,
    add_catalogue,
    add_pool,
    at_least,
    engine_of,
    names,
    numbers,
)
from core.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.doctor.here import Visit
    from benchmarks.estimate.estimate import ModelEstimate
    from benchmarks.ledger import LedgerRow
    from benchmarks.plan import Plan
    from benchmarks.servers import ServerOptions
    from serving.limits.budget import Budget

ENDPOINT_ONLY = ("requests-per-minute", "tokens-per-minute", "budget", "prices")


def add_sweep(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `sweep`."""
    add = commands.add_parser(
        "sweep",
        help="run a suite, or go on with it",
        description="Runs every sample that a suite still owes, through a pool that it starts "
        "and stops, or through any OpenAI-compatible server with --endpoint. Stop it at any "
        "time: the same command goes on where it was, inside a sample.",
    )
    add_sweep_flags(add)
    add.set_defaults(command=sweep)


def add_sweep_flags(add: argparse.ArgumentParser) -> None:
    """Adds the suite and all flags, which `run.py plan` takes as well."""
    add.add_argument("suite", metavar="SUITE", help="a name from `run.py suites`, or a .toml file")
    _add_choice(add)
    _add_server(add)
    add.add_argument(
        "--accept",
        type=names,
        action="extend",
        default=[],
        metavar="CHECK",
        help="take what a check of `run.py doctor` refuses as it is; kept in the run and named in "
        "its reports. May be given again",
    )
    add.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")
    add.add_argument("--out", type=Path, metavar="RUN_DIR", help="default: results/SUITE")


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `status`."""
    add = commands.add_parser(
        "status",
        help="how a sweep is, in a few lines",
        description="Prints how a sweep is: cells, rates, errors, time left, the replicas' "
        "health. It reads one small file, so that it works from other hosts too. Exit code 0 if "
        "all is well, else 1.",
    )
    add.add_argument("run", type=Path, metavar="RUN_DIR", help="the --out of a sweep")
    add.set_defaults(command=status)


def _add_choice(add: argparse.ArgumentParser) -> None:
    """Flags that change what the suite asks for."""
    add.add_argument(
        "--models", type=names, metavar="A,B", help="e.g. pocket-base,pocket-base@temperature=0.4"
    )
    add.add_argument(
        "--methods",
        type=names,
        metavar="A,B",
        help="e.g. memagent,gru_mem@exit_gate=false, or your own: FILE.py:CLASS",
    )
    add.add_argument(
        "--tasks", type=names, metavar="T,U", help="e.g. vt,vt@hops=2, or your own: FILE.py:NAME"
    )
    add.add_argument("--lengths", type=numbers, metavar="N,M", help="tokens, e.g. 8192,16384")
    add.add_argument("--samples", type=at_least(1), metavar="N", help="samples of every cell")
    add.add_argument("--draws", type=at_least(1), metavar="N", help="answers of every sample")
    add.add_argument("--seed", type=int, metavar="S", help="of the data and of the sampling")
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


def _add_server(add: argparse.ArgumentParser) -> None:
    """Flags that say where to ask, and how hard."""
    add.add_argument("--concurrency", type=at_least(1), metavar="C", help="samples in work at once")
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
        "--reply-timeout",
        type=at_least(1),
        default=1800,
        metavar="S",
        help="seconds that one reply may take in all; a request that takes longer has failed "
        "(default: 1800)",
    )
    add.add_argument(
        "--outage",
        type=at_least(1),
        default=600,
        metavar="S",
        help="seconds that an endpoint may be away before the sweep ends, to be gone on with "
        "later (default: 600); a pool of ours is waited for as long as it lives",
    )
    _add_limits(add)
    add_pool(add)
    add.add_argument(
        "--metrics",
        type=at_least(1),
        metavar="PORT",
        help="tell the sweep's state to Prometheus at http://127.0.0.1:PORT/metrics",
    )


def _add_limits(add: argparse.ArgumentParser) -> None:
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


def sweep(arguments: argparse.Namespace) -> int:
    """run.py sweep"""
    from benchmarks.doctor.doctor import longest_turns, told
    from benchmarks.doctor.findings import refuse
    from benchmarks.doctor.here import look_around
    from benchmarks.doctor.probes import said_first
    from benchmarks.estimate.lines import with_lines
    from benchmarks.servers import limits_of, server_for
    from benchmarks.sweep import sweep as run_sweep

    plan, run_dir = plan_of(arguments)
    estimates, lines = with_lines(plan, run_dir, concurrency=arguments.concurrency)
    for line in lines:
        print(line, file=sys.stderr)
    found = look_around(visit_of(arguments, plan, run_dir, estimates))
    refuse(found, plan.accepted)
    for line in told(found, plan.accepted):
        print(line, file=sys.stderr)
    longest = longest_turns(plan, estimates)
    options = replace(server_options(arguments, plan), longest_turns=longest)
    if arguments.endpoint:
        print(f"check {said_first(longest, short=True)}", file=sys.stderr)
    rows = run_sweep(
        plan,
        run_dir,
        server_for(plan, options, run_dir),
        limits_of(plan, options),
        metrics_port=arguments.metrics,
        budget=options.budget,
    )
    _print_ledger(rows, options.budget)
    print(f"\nstore   {run_dir / 'run.sqlite'}\nnext    python run.py report {run_dir}")
    return INCOMPLETE if any(row.errors or row.owed for row in rows) else DONE


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


def status(arguments: argparse.Namespace) -> int:
    """run.py status"""
    from benchmarks.watch.state import status as state_of

    lines, well = state_of(arguments.run)
    print("\n".join(lines))
    return DONE if well else INCOMPLETE


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


def _print_ledger(rows: list[LedgerRow], budget: Budget | None) -> None:
    """Plain columns, so that it reads the same on a terminal, in a log and in an e-mail."""
    heads = ("task", "length", "method", "model", "samples", "ok", "owed", "errors", "cut",
             "unparsed", "published", "strict", *(("USD",) if budget else ()))  # fmt: skip
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        errors = ", ".join(f"{n} {kind}" for kind, n in sorted(row.errors.items())) or "0"
        counts = map(str, (row.cell.rollouts, row.ok, row.owed, errors, row.cut, row.unparsed))
        scores = (f"{100 * row.scores.get(p, 0):.1f}" for p in ("published", "strict"))
        cell = row.cell
        names = (cell.task, str(cell.length), cell.method, cell.model)
        lines.append((*names, *counts, *scores, *((f"{row.usd:.4f}",) if budget else ())))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print("\nLedger: where every sample went; scores in percent, failures count 0")
    for line in lines:
        left = "  ".join(text.ljust(width) for text, width in zip(line[:4], widths, strict=False))
        right = (text.rjust(width) for text, width in zip(line[4:], widths[4:], strict=True))
        print(f"{left} ", *right)
    if budget is not None:
        kept = sum(row.usd for row in rows)
        of = "" if budget.limit_usd is None else f" of a budget of {budget.limit_usd:g} USD"
        rest = budget.spent_usd - kept
        print(f"\ncost    {budget.spent_usd:.4f} USD{of}", end="")
        print(f", {rest:.4f} of it for requests that brought no reply" if rest > 5e-5 else "")
