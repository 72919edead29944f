"""`run.py export` and `run.py score`: a run's samples as JSON lines, and replies from anywhere."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE
from commands.jsonl import read_jsonl, write_jsonl
from core.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.store import Store
    from core.types import Json

EXPORTED = (
    *("id", "task", "length", "method", "model", "index", "question", "golds", "reply", "status"),
    *("error_kind", "scores", "turns", "prompt_tokens", "completion_tokens", "seconds"),
    "evidence",
)
"""Fields of a line of `run.py export`."""

SCORED_AT_ONCE = 32
"""Answers that scorers have in hand at a time; one that asks a model waits for it."""


def add_samples(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `export` and `score`."""
    add = commands.add_parser("export", help="write a run's samples or turns as JSON lines")
    add.add_argument("run", type=Path, metavar="RUN_DIR")
    add.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    add.add_argument("--turns", action="store_true", help="one line a turn, not a sample")
    add.set_defaults(command=export)

    add = commands.add_parser(
        "score",
        help="score replies from anywhere",
        description="Reads JSON lines with the "
        "fields kind (ruler_hqa, qa_1, all_of), reply and golds; writes them with the verdicts.",
    )
    add.add_argument("replies", type=Path, metavar="FILE.jsonl")
    add.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    add.set_defaults(command=score)


def export(arguments: argparse.Namespace) -> int:
    """run.py export"""
    from benchmarks.store import Store

    with Store.read(arguments.run) as store:
        rows = store.turn_rows() if arguments.turns else _exported_samples(store)
        count = write_jsonl(rows, arguments.out)
    print(f"{count} lines in {arguments.out}")
    return DONE


def score(arguments: argparse.Namespace) -> int:
    """run.py score"""
    rows = asyncio.run(_scored(arguments.replies))
    count = write_jsonl(rows, arguments.out)
    print(f"{count} lines in {arguments.out}")
    return DONE


async def _scored(replies: Path) -> list[dict[str, Json]]:
    from tasks.records import score_record

    at_once = asyncio.Semaphore(SCORED_AT_ONCE)

    async def one(number: int, record: Mapping[str, Json]) -> dict[str, Json]:
        async with at_once:
            try:
                return await score_record(record)
            except UsageError as error:
                raise UsageError(f"{replies}, line {number}: {error}") from error

    return await asyncio.gather(*[one(*line) for line in read_jsonl(replies)])


def _exported_samples(store: Store) -> Iterator[dict[str, object]]:
    return ({field: row[field] for field in EXPORTED} for row in store.sample_rows())
