"""The command line: finds the command, calls it, and turns how it ended into an exit code."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from commands.data import add_data
from commands.doctor import add_doctor
from commands.exhibit import add_exhibit
from commands.flags import INCOMPLETE, WRONG_USE
from commands.models import add_models
from commands.plan import add_plan, add_suites
from commands.report import add_report
from commands.samples import add_samples
from commands.serve import add_serve
from commands.sweep import add_status, add_sweep
from commands.tasks import add_tasks
from commands.train import add_train
from commands.view import add_view
from core.errors import HarnessError, UsageError

RESUME = "Nothing finished is lost: give the same command again to go on."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 done with failed samples or
    stopped in a state that resumes, 2 wrong use."""
    arguments = _parser().parse_args(argv)
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
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Long-context benchmark: make haystacks, run memory agents and baselines "
        "on a pool of vLLM replicas, report accuracy against length.",
        epilog="Start with: python run.py sweep pocket, then: python run.py report results/pocket",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    groups = (
        add_sweep,
        add_plan,
        add_doctor,
        add_status,
        add_report,
        add_view,
        add_exhibit,
        add_serve,
        add_models,
        add_samples,
        add_train,
    )
    for add in (*groups, add_tasks, add_data, add_suites):
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
