"""`run.py suites`: which cells belong together."""

from __future__ import annotations

import argparse

from commands.flags import DONE


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
