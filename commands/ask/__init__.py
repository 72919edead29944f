"""`run.py ask`: a question about one's own documents, answered by an agent or a baseline."""

from __future__ import annotations

import argparse

from commands.ask.ask import add_ask as _add_ask


def add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `ask`."""
    _add_ask(commands)
