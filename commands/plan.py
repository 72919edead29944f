"""`run.py suites`, `run.py plan` and `run.py measure`: what can be swept, what it takes before it
costs anything, and how fast a model is here."""

from __future__ import annotations

import argparse
import sys

from commands.flags import DONE, add_catalogue, at_least, numbers
from commands.sweep import add_sweep_flags, plan_of

DEFAULT_GPU = "H100"
EXACT_TOKENS = sys.maxsize


def add_suites(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `suites`."""
    text = "list the suites"
    commands.add_parser("suites", help=text, description=text).set_defaults(command=suites)


def suites(arguments: argparse.Namespace) -> int:
    """run.py suites"""
    from benchmarks.suite import load_suite, suite_names

    width = max(map(len, suite_names()))
    for name in suite_names():
        print(f"{name:{width}}  {load_suite(name).summary}")
    return DONE


def add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `plan` and `measure`."""
    add = commands.add_parser(
        "plan",
        help="say what a sweep will take, and start nothing",
        description="Takes the flags of `run.py sweep` and prints, model by model, the turns, "
        "tokens, disk and GPU-hours of what the run folder still owes. An estimate: by the GPU's "
        "data sheet until `run.py measure MODEL` has measured rates here.",
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
    )
    add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
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
    from benchmarks.estimate.lines import estimated

    made, run_dir = plan_of(arguments, dry=True)
    lines = estimated(
        made,
        run_dir,
        gpu=arguments.gpu,
        concurrency=arguments.concurrency,
        reply_tokens=arguments.reply_tokens,
        looked_at_tokens=EXACT_TOKENS if arguments.exact else LOOKED_AT_TOKENS,
    )
    for line in lines:
        print(line)
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
