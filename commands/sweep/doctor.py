"""`run.py doctor`: whether a sweep would measure what its reader thinks."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, WRONG_USE, examples
from commands.sweep.flags import add_sweep_flags, plan_of, server_options, visit_of
from core.errors import DataMissing
from core.types import Message

if TYPE_CHECKING:
    from benchmarks.doctor.findings import Finding
    from benchmarks.estimate.estimate import ModelEstimate
    from benchmarks.plan import Plan
    from benchmarks.sweep import Serving


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `doctor`."""
    from benchmarks.doctor.findings import CHECKS

    listed = "\n".join(f"  {name:18}  {meaning}" for name, meaning in CHECKS.items())
    add = commands.add_parser(
        "doctor",
        help="check that a sweep would measure what it says",
        description="Takes the flags of `run.py sweep`, looks at files, machine and settings, and "
        "asks an endpoint what it makes of requests. Nothing is started and nothing stored. Every "
        "sweep begins with the same checks, shortly. Exit code 2 where something is refused.",
        epilog=examples(
            "doctor pocket                                # files, disk, windows: no request",
            "doctor SUITE --models NAME --endpoint http://HOST:8000/v1 --tokenizer DIR",
        )
        + f"\n\nwhat is looked for, and the names for --accept:\n{listed}",
    )
    add_sweep_flags(add)
    add.set_defaults(command=doctor)


def doctor(arguments: argparse.Namespace) -> int:
    """run.py doctor"""
    from benchmarks.doctor.doctor import told
    from benchmarks.doctor.findings import Finding, refused
    from benchmarks.doctor.here import look_around
    from benchmarks.estimate.lines import estimated

    try:
        plan, run_dir = plan_of(arguments, dry=True)
    except DataMissing as error:
        print(Finding("data", "refused", str(error).rstrip("."), "").line())
        return WRONG_USE
    for name, model in {m.served_as: m for m in plan.models.values()}.items():
        if model.tokenizer.has_chat_template:
            shown = model.tokenizer.chat_text([Message("user", "Hello")])
            print(f"template of {name}: {shown!r}")
    estimates, _ = estimated(plan, run_dir, concurrency=arguments.concurrency)
    found = look_around(visit_of(arguments, plan, run_dir, estimates))
    found += _asked(arguments, plan, run_dir, estimates)
    for line in told(found, plan.accepted):
        print(line)
    bad = refused(found, plan.accepted)
    print(f"{len(found)} found, {len(bad)} of them refused" if found else "all is well")
    return WRONG_USE if bad else DONE


def _asked(
    arguments: argparse.Namespace, plan: Plan, run_dir: Path, estimates: Sequence[ModelEstimate]
) -> list[Finding]:
    """What the endpoint makes of requests, model by model."""
    from benchmarks.doctor.doctor import longest_turns, server_of
    from benchmarks.doctor.probes import examine, said_first
    from benchmarks.servers import server_for

    models = {model.served_as: model for model in plan.models.values()}
    if arguments.endpoint is None:
        print("no request is sent: the pool would be ours, and its settings are read", flush=True)
        return []
    longest = longest_turns(plan, estimates)
    print(said_first(longest, short=False), flush=True)

    async def all_models(serving: Serving) -> list[Finding]:
        found = []
        for name, model in models.items():
            async with serving.answers(model) as answering, answering.client as client:
                found += await examine(server_of(model, client, longest[name]), short=False)
        return found

    options = server_options(arguments, plan)
    with server_for(plan, options, run_dir)({}) as serving:
        return asyncio.run(all_models(serving))
