"""`run.py score` and `run.py rescore`: scores of replies from anywhere, or once more of a run's
own."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, examples
from core.errors import UsageError
from core.files import read_jsonl, write_jsonl

if TYPE_CHECKING:
    from core.types import Json


def add_samples(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `score` and `rescore`."""
    add = commands.add_parser(
        "score",
        help="score replies from anywhere",
        description="Reads JSON lines with the "
        "fields kind (ruler_hqa, qa_1, all_of), reply and golds; writes them with the verdicts.",
        epilog=examples("score replies.jsonl --out scored.jsonl"),
    )
    add.add_argument("replies", type=Path, metavar="FILE.jsonl")
    add.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    add.set_defaults(command=score)

    add = commands.add_parser(
        "rescore",
        help="score a run's stored replies again, by the scorers as they are now",
        description="Scores every stored reply again, in place, and says how many scores changed.",
        epilog=examples("rescore results/pocket"),
    )
    add.add_argument("run", type=Path, metavar="RUN_DIR|FILE.jsonl.gz", help="a run or its export")
    add.set_defaults(command=rescore)


def score(arguments: argparse.Namespace) -> int:
    """run.py score"""
    from tasks.scoring import gathered

    lines = [(arguments.replies, *line) for line in read_jsonl(arguments.replies)]
    count = write_jsonl(arguments.out, asyncio.run(gathered(_scored, lines)))
    print(f"{count} lines in {arguments.out}")
    return DONE


def rescore(arguments: argparse.Namespace) -> int:
    """run.py rescore"""
    from reports.run.rescore import rescore

    for line in rescore(arguments.run).lines():
        print(line)
    return DONE


async def _scored(line: tuple[Path, int, Mapping[str, Json]]) -> dict[str, Json]:
    from tasks.records import score_record

    replies, number, record = line
    try:
        return await score_record(record)
    except UsageError as error:
        raise UsageError(f"{replies}, line {number}: {error}") from error
