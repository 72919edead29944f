"""`run.py sweep` and `run.py status`: run a suite, or go on with it, and how that goes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, INCOMPLETE, examples
from commands.sweep.flags import add_sweep_flags, plan_of, server_options, visit_of

if TYPE_CHECKING:
    from benchmarks.ledger import LedgerRow
    from serving.limits.budget import Budget


def add_sweep(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `sweep`."""
    add = commands.add_parser(
        "sweep",
        help="run a suite, or go on with it",
        description="Runs every sample that a suite still owes, through a pool that it starts "
        "and stops, or through any OpenAI-compatible server with --endpoint. Stop it at any "
        "time: the same command goes on where it was, inside a sample.",
        epilog=examples(
            "sweep pocket                                 # the embedded models; needs nothing",
            "sweep pocket --lengths 8192 --samples 16 --out results/short",
            "sweep memagent_table2 --models rl-memagent-7b --data DIR         # needs GPUs",
            "sweep memagent_table2 --models NAME --endpoint http://HOST:8000/v1 --tokenizer DIR",
            "sweep SUITE --models gpt-x --endpoint https://api.openai.com/v1 --plain-openai \\\n"
            "      --tokenizer DIR --tokens-per-minute 200000 --budget 20 --prices prices.toml",
        ),
    )
    add_sweep_flags(add)
    add.set_defaults(command=sweep)


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `status`."""
    add = commands.add_parser(
        "status",
        help="how a sweep is, in a few lines",
        description="Prints how a sweep is: cells, rates, errors, time left, the replicas' "
        "health. It reads one small file, so that it works from other hosts too. Exit code 0 if "
        "all is well, else 1.",
        epilog=examples("status results/pocket"),
    )
    add.add_argument("run", type=Path, metavar="RUN_DIR", help="the --out of a sweep")
    add.set_defaults(command=status)


def sweep(arguments: argparse.Namespace) -> int:
    """run.py sweep"""
    from benchmarks.doctor.doctor import longest_turns, told
    from benchmarks.doctor.findings import refuse
    from benchmarks.doctor.here import look_around
    from benchmarks.doctor.probes import said_first
    from benchmarks.estimate.lines import cost_line, estimated
    from benchmarks.servers import limits_of, server_for
    from benchmarks.sweep import sweep as run_sweep

    plan, run_dir = plan_of(arguments)
    options = server_options(arguments, plan)
    estimates, lines = estimated(plan, run_dir, concurrency=arguments.concurrency)
    for line in lines:
        print(line, file=sys.stderr)
    found = look_around(visit_of(arguments, plan, run_dir, estimates))
    refuse(found, plan.accepted)
    for line in told(found, plan.accepted):
        print(line, file=sys.stderr)
    longest = longest_turns(plan, estimates)
    options = replace(options, longest_turns=longest)
    if options.prices:
        print(cost_line(plan, estimates, options.prices), file=sys.stderr)
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


def status(arguments: argparse.Namespace) -> int:
    """run.py status"""
    from benchmarks.watch.state import status as state_of

    lines, well = state_of(arguments.run)
    print("\n".join(lines))
    return DONE if well else INCOMPLETE


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
        print(f"\ncost    {budget.spent.in_words(sum(row.usd for row in rows))}")
