"""What exhibits read of single samples: where a reading ended, how large a memory was, turns.

Everything here comes from the stores, read once; the numbers of cells come from `reports.run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.store import Cell
from core.types import Turn
from reports.exhibits.drawing.bars import Exits
from reports.exhibits.exhibit import Material
from reports.labels import EXITS, Series
from reports.run.data import RunData
from reports.run.exported import key_of, open_run, row_key


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished sample: its cell, its row of the store, and the run that has its turns."""

    run: Path
    cell: Cell
    row: Mapping[str, Any]

    @property
    def series(self) -> Series:
        """The method and model that it is of."""
        return Series(self.cell.method, self.cell.model)

    def turns(self) -> list[Turn]:
        """All its turns, in order; none of an export."""
        place = self.cell.id, self.row["index"], self.row["draw"]
        with open_run(self.run) as source:
            return [turn for _, turn in source.turns_of(place)]


def rollouts(material: Material) -> Iterator[Rollout]:
    """Every sample that ended well, run by run, in the order of the plans."""
    for run in material.runs:
        with open_run(run) as source:
            cells = {key_of(cell): cell for cell in source.cells()}
            for row in source.sample_rows():
                if row["status"] == "ok":
                    yield Rollout(run, cells[row_key(row)], row)


Endings = Mapping[tuple[Series, int], Counter[str]]
"""By series and length: how many readings were `early`, `exact`, `late`."""


def endings(run: RunData, found: Iterable[Rollout]) -> dict[str, Endings]:
    """Of each task, where the readings ended: before, at or after the chunk of the last evidence.
    One that never said it had enough ended late."""
    counted: dict[str, dict[tuple[Series, int], Counter[str]]] = {}
    for one in found:
        kind = ending(run, one)
        if kind is not None:
            of_task = counted.setdefault(one.cell.task, {})
            of_task.setdefault((one.series, one.cell.length), Counter())[kind] += 1
    return {**counted}


def exits(run: RunData, counted: Iterable[Endings]) -> list[Exits]:
    """Shares of the readings of some tasks together, in the order of the run's plan."""
    total: dict[tuple[Series, int], Counter[str]] = {}
    for of_task in counted:
        for place, found in of_task.items():
            total.setdefault(place, Counter()).update(found)
    return [
        Exits(
            look.label,
            length,
            shares={kind: kinds[kind] / kinds.total() for kind in EXITS},
            samples=kinds.total(),
        )
        for series, look in run.looks().items()
        for length in run.lengths
        if (kinds := total.get((series, length))) is not None
    ]


def ending(run: RunData, one: Rollout) -> str | None:
    """`early`, `exact` or `late`; None without an exit gate, or where the evidence is not known."""
    last = last_evidence_chunk(run, one)
    counts = one.row["counts"]
    if (
        last is None
        or "exited" not in counts
        or not run.method_settings(one.series).get("exit_gate", True)
    ):
        return None
    end = counts["chunks_read"] - 1
    if not counts["exited"] or end > last:
        return "late"
    return "exact" if end == last else "early"


def last_evidence_chunk(run: RunData, one: Rollout) -> int | None:
    """The chunk, from 0, that holds the middle of the last evidence; None if not known."""
    chunks = evidence_chunks(run, one)
    return max(chunks) if chunks else None


def evidence_chunks(run: RunData, one: Rollout) -> list[int]:
    """The chunk, from 0, that holds the middle of each piece of evidence."""
    size = run.method_settings(one.series).get("chunk_tokens")
    if not size:
        return []
    spans = [piece["tokens"] for piece in one.row.get("evidence") or ()]
    return [(start + end - 1) // 2 // int(size) for start, end in spans]
