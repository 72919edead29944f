"""What `run.py ask` shows: what is ahead, the memory as it changes, the answer with its sources."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.asking.ask import Outcome
    from core.types import Turn
    from tasks.documents.kept import Kept

MOST_WORDS = 8


class Watch:
    """Says what is ahead and, if wanted, what each turn made of the memory."""

    def __init__(self, run_dir: Path, turns: int | None, *, show_memory: bool) -> None:
        from benchmarks.asking.ask import stored_turns

        stored = stored_turns(run_dir)
        self.done, self.turns, self.show_memory = len(stored), turns, show_memory
        told = [turn.memory for turn in stored if turn.memory is not None]
        self.memory = told[-1] if told else None

    def ahead(self, method: str, tokens: int, kept: Kept) -> str:
        """What will be asked for, in a line."""
        count = len(kept.documents)
        what = f"{count} document{'s' if count > 1 else ''}, {tokens:,} tokens"
        turns = f", at most {self.turns:,} turns by {method}" if self.turns else f", by {method}"
        done = f"; {self.done:,} are done" if self.done else ""
        return f"ask   {what}{turns}{done}"

    def heard(self, turn: Turn) -> str:
        """What is shown of a turn; empty for nothing."""
        self.done += 1
        if not self.show_memory or turn.memory is None or turn.memory == self.memory:
            return ""
        self.memory = turn.memory
        of = f" of {self.turns:,}" if self.turns else ""
        return f"memory after turn {self.done:,}{of}:\n{_shown(turn.memory, '    ')}"


def print_outcome(ended: Outcome, run_dir: Path) -> None:
    """The answer on standard output, so that it can be piped; with its sources below it."""
    if ended.failure:
        say(f"error: no answer: {ended.failure.kind}: {ended.failure.message}")
        return
    print(_shown(ended.said) or "(an empty reply)")
    if ended.memory is not None and not ended.sources:
        print("\nno source: the final memory holds no word that the question does not have")
    elif ended.sources:
        print("\nsources, the best first")
    for source in ended.sources:
        more = ["..."] if len(source.words) > MOST_WORDS else []
        words = ", ".join([*source.words[:MOST_WORDS], *more])
        print(f"  {', '.join(map(str, source.lines))}{f'  ({words})' if words else ''}")
    if ended.more_sources:
        print(f"  and {ended.more_sources:,} more")
    if ended.unseen_tokens:
        print(f"\n{ended.unseen_tokens:,} tokens of the text were not read")
    print()
    if ended.cost:
        print(f"cost    {ended.cost}")
    print(f"run     {run_dir}\nnext    python run.py report {run_dir}")


def _shown(text: str, indent: str = "") -> str:
    """What a model wrote, as a terminal may have it: without what it would obey."""
    from serving.api.wire import visible

    return "\n".join(f"{indent}{visible(line)}" for line in text.strip().split("\n"))


def say(text: str) -> None:
    """A line for a person, beside what may be piped."""
    print(text, file=sys.stderr)
