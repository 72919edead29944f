"""`run.py suites`, `run.py plan` and `run.py measure`: what can be swept, what it takes before it
costs anything, and how fast a model is here."""

from __future__ import annotations

import argparse
import sys

from commands.flags import (
    DONE,
    add_catalogue,
    add_json,
    at_least,
    completes,
    examples,
    models_there_are,
    numbers,
    print_table,
)
from commands.sweep.flags import add_sweep_flags, plan_of, server_options
from core.types import Json

DEFAULT_GPU = "H100"
EXACT_TOKENS = sys.maxsize


def add_suites(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `suites`."""
    add = commands.add_parser(
        "suites",
        help="list the suites",
        description="Lists the suites: which cells belong together. `run.py plan SUITE` says what "
        "one takes.",
        epilog=examples("suites", "suites --json", "plan memagent_table2"),
    )
    add_json(add)
    add.set_defaults(command=suites)


def suites(arguments: argparse.Namespace) -> int:
    """run.py suites"""
    from benchmarks.cells import Choice, cells_of
    from benchmarks.suite import load_suite, suite_names

    rows: list[dict[str, Json]] = []
    for name in suite_names():
        suite = load_suite(name)
        cells = cells_of(suite, Choice())
        lengths = sorted({cell.length for cell in cells})
        rows.append(
            {
                "suite": name,
                "models": len({cell.model for cell in cells}),
                "cells": len(cells),
                "samples": sum(cell.samples for cell in cells),
                "longest": lengths[-1] or None,
                "summary": suite.summary,
            }
        )
    print_table(rows, as_json=arguments.json)
    return DONE


def add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `plan` and `measure`."""
    add = commands.add_parser(
        "plan",
        help="say what a sweep will take, and start nothing",
        description="Takes the flags of `run.py sweep` and prints, model by model, the turns, "
        "tokens, disk and GPU-hours of what the run folder still owes. An estimate: by the GPU's "
        "data sheet until `run.py measure MODEL` has measured rates here.",
        epilog=examples(
            "plan pocket",
            "plan memagent_table2 --models rl-memagent-7b --data DIR --gpu A100",
        ),
    )
    add_sweep_flags(add)
    add.add_argument("--gpu", default=DEFAULT_GPU, metavar="NAME", help="default: %(default)s")
    add.add_argument(
        "--reply-tokens", type=at_least(1), metavar="N", help="that replies have, at most"
    )
    add.add_argument("--exact", action="store_true", help="count every sample of long cells, too")
    add.set_defaults(command=plan)

    add = commands.add_parser(
        "measure",
        help="measure how fast a model is on this machine's pool",
        description="Starts a pool of the model, times memory turns on it and writes the rates to "
        "results/rates/MODEL.json, where `run.py plan` finds them.",
        epilog=examples("measure pocket-memagent", "measure rl-memagent-7b --in-flight 64,256"),
    )
    model = add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
    completes(model, models_there_are)
    add.add_argument(
        "--in-flight", type=numbers, metavar="N,M", help="requests at once; default: the model's"
    )
    add.add_argument("--turns", type=at_least(1), default=4, metavar="N", help="per request place")
    add.add_argument("--ray-address", metavar="ADDRESS", help="join this Ray cluster")
    add_catalogue(add)
    add.set_defaults(command=measure)


def plan(arguments: argparse.Namespace) -> int:
    """run.py plan"""
    from benchmarks.estimate.dry_run import LOOKED_AT_TOKENS
    from benchmarks.estimate.lines import cost_line, estimated

    made, run_dir = plan_of(arguments, dry=True)
    estimates, lines = estimated(
        made,
        run_dir,
        gpu=arguments.gpu,
        concurrency=arguments.concurrency,
        reply_tokens=arguments.reply_tokens,
        looked_at_tokens=EXACT_TOKENS if arguments.exact else LOOKED_AT_TOKENS,
    )
    for line in lines:
        print(line)
    if arguments.prices is not None:
        options = server_options(arguments, made)
        print(cost_line(made, estimates, options.prices))
    return DONE


def measure(arguments: argparse.Namespace) -> int:
    """run.py measure"""
    from benchmarks.estimate.measure import measure_model
    from benchmarks.estimate.rates import write_rates
    from serving.catalogue import find_model, load_catalogue

    entry = find_model(arguments.model, load_catalogue(arguments.catalogue))
    rates = measure_model(
        entry,
        arguments.in_flight or (1, entry.concurrency),
        arguments.turns,
        ray_address=arguments.ray_address,
    )
    for rate in rates.rates:
        print(
            f"{rate.in_flight:>5} in flight  {rate.prompt_tokens_per_s:>10,.0f} prompt tokens/s  "
            f"{rate.reply_tokens_per_s:>8,.0f} reply tokens/s"
        )
    print(f"rates  {write_rates(rates)}")
    return DONE
