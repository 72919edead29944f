"""Scores a run again: every stored reply, by the scorers as they are now.

A task's scorer sees the question, the golds and what the sample's `meta` tells; the context is
empty. Failed samples keep their 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.provenance import command_line, provenance
from benchmarks.store import Store
from core.context import Context
from core.errors import UsageError
from core.types import Answer, Problem, Sample
from reports.run.exported import ExportedRun, beside_samples, key_of, row_key, write_export
from tasks.registry import find_task
from tasks.scoring import Scores, flat, gathered, scored

Key = tuple[tuple[str, int, str, str], int, int]
"""A cell, a sample's index in it, and the draw."""


@dataclass(slots=True)
class Rescored:
    """What came of it. `up` and `down` count samples by `profile.metric`."""

    samples: int = 0
    changed: int = 0
    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """In words, for a person."""
        metrics = [
            f"  {name}: {self.up[name]} up, {self.down[name]} down"
            for name in sorted(self.up | self.down)
        ]
        return [f"{self.samples:,} samples scored again, {self.changed:,} changed", *metrics]


def rescore(run: Path) -> Rescored:
    """Scores a run's folder, or an export of it, again, and writes what changed in its place.

    Raises:
        UsageError: there is no run, a task is not known, or a scorer fails. Nothing has changed.
        StoreError: the store is damaged.
    """
    return _rescore_export(run) if run.is_file() else _rescore_store(run)


def _rescore_store(run_dir: Path) -> Rescored:
    Store.read(run_dir).close()  # a folder without a run must not become one
    with Store.write(run_dir) as store:
        rows = list(store.sample_rows())
        changed, result = asyncio.run(_changes(rows))
        cells = {key_of(cell): cell.id for cell in store.cells()}
        store.set_scores(
            {(cells[key], idx, draw): scores for (key, idx, draw), scores in changed.items()}
        )
        if changed:
            store.begin_session(provenance(command_line()), _now())
    return result


def _rescore_export(path: Path) -> Rescored:
    source = ExportedRun(path)
    rows = list(source.sample_rows())
    changed, result = asyncio.run(_changes(rows))
    if changed:
        session = {"started": _now(), **provenance(command_line())}
        new = (row | {"scores": changed.get(_key(row), row["scores"])} for row in rows)
        run = beside_samples(source)
        write_export(path, new, {**run, "sessions": [*run["sessions"], session]})
    return result


async def _changes(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[Key, Scores], Rescored]:
    """The scores that are not those stored, and the count of them."""
    # A sample without golds has no score to make again.
    ended = [row for row in rows if row["status"] == "ok" and (row["golds"] or row["scores"])]
    new = await gathered(_score, ended)
    changed: dict[Key, Scores] = {}
    result = Rescored(samples=len(ended))
    for row, scores in zip(ended, new, strict=True):
        if scores == row["scores"]:
            continue
        changed[_key(row)] = scores
        result.changed += 1
        before, after = flat(row["scores"]), flat(scores)
        result.up.update(n for n, value in after.items() if value > before.get(n, 0.0))
        result.down.update(n for n, value in before.items() if value > after.get(n, 0.0))
    return changed, result


async def _score(row: Mapping[str, Any]) -> Scores:
    task = find_task(row["task"])
    answer = Answer(row["reply"], row["prediction"], row["truncated_tokens"], row["counts"])
    problem = Problem(Context([]), row["question"])
    place = (row["id"], row["task"], row["index"], problem)
    sample = Sample(*place, tuple(row["golds"]), task.match, meta=row["meta"])
    try:
        return await scored(task.scorer, answer, sample)
    except Exception as error:  # whatever a scorer from outside raises is its author's to mend
        where = " ".join(map(str, (*row_key(row), "sample", row["index"])))
        raise UsageError(f"{where}: its scorer: {type(error).__name__}: {error}") from error


def _key(row: Mapping[str, Any]) -> Key:
    return row_key(row), row["index"], row["draw"]


def _now() -> str:
    return datetime.now(UTC).isoformat("T", "seconds")
