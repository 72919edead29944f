#!/usr/bin/env python
# PYTHON_ARGCOMPLETE_OK
"""The command line: finds the command, calls it, and turns how it ended into an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from commands.ask.ask import add_ask
from commands.data import add_data
from commands.exhibit import add_exhibit
from commands.export import add_export
from commands.flags import DONE, INCOMPLETE, WRONG_USE, Parser, examples, version
from commands.models import add_models
from commands.report import add_report
from commands.samples import add_samples
from commands.serve import add_serve
from commands.sweep.doctor import add_doctor
from commands.sweep.plan import add_plan, add_suites
from commands.sweep.sweep import add_status, add_sweep
from commands.tasks import add_tasks
from commands.train import add_train
from commands.view import add_view
from core.errors import HarnessError, UsageError

RESUME = "Nothing finished is lost: give the same command again to go on."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 done with failed samples or
    stopped in a state that resumes, 2 wrong use."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell when it asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return DONE
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # httpx, which fetches corpora, logs each request's address.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    except HarnessError as error:
        print(f"error: {error}\n{RESUME}", file=sys.stderr)
        return INCOMPLETE
    except KeyboardInterrupt:
        print(f"\nStopped. {RESUME}", file=sys.stderr)
        return INCOMPLETE
    except BrokenPipeError:
        sys.stderr.close()
        return INCOMPLETE


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="run.py",
        description="Long-context benchmark: make haystacks, run memory agents and baselines "
        "on a pool of vLLM replicas, report accuracy against length.",
        epilog=examples(
            "sweep pocket                  # the embedded models on this machine; minutes",
            "report results/pocket         # figures, tables and a page of it",
            "tasks; python run.py suites; python run.py models          # what there is",
            "plan memagent_table2          # what a suite would take, before it costs anything",
            "doctor SUITE --models NAME --endpoint URL --tokenizer DIR  # is that server sound?",
            "sweep SUITE --models NAME --endpoint URL --tokenizer DIR",
            "sweep --help                  # the flags of a command, with examples",
        )
        + "\n\nTab completes commands, flags and names after `activate-global-python-argcomplete`.",
    )
    parser.add_argument("--version", action="version", version=f"longmem-bench {version()}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    groups = (
        add_ask,
        add_sweep,
        add_plan,
        add_doctor,
        add_status,
        add_report,
        add_view,
        add_exhibit,
        add_serve,
        add_models,
        add_export,
        add_samples,
        add_train,
    )
    for add in (*groups, add_tasks, add_data, add_suites):
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
