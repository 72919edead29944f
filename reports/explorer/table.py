"""Every finished sample as a row of columns: what the explorer's table shows, without turns.

    {name, live, methods, models, causes, cells: [[task, length, method, model, samples, draws],
     ...],
     samples: [[question, golds], ...],          different samples; methods share them
     blocks: {number of a cell: {of, index, strict, ...: one value a finished sample}}}

Blocks are whole cells, so that a page that is open takes what a running sweep has added cell by
cell. `version` counts changes; a block changed at some version.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ledger import primary_metrics
from benchmarks.store import Cell
from core.types import Turn
from reports.causes.cause import MEANINGS, Diagnosis, diagnose, is_failure
from reports.labels import look_of, methods_of, model_label
from reports.run.exported import RunSource, key_of, open_run, row_key
from reports.run.merged import merged_settings
from tasks.scoring import SUB_EM

LONGEST_QUESTION, LONGEST_ANSWER = 300, 120
"""Characters of them that the table has."""
COUNTED = ("turns", "prompt_tokens", "completion_tokens", "cut_turns")

Block = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Explored:
    """A finished sample: its row of the store, its turns, and where it lost what."""

    row: Mapping[str, Any]
    turns: tuple[Turn, ...]
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is: number `run` of the runs, and the cell as that run has it."""

    run: int
    cell: Cell


class Runs:
    """One run, or several that are shown as one, as the explorer reads them. Every method opens
    what it reads anew, and only reads: a sweep may be writing, and any thread may ask."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises:
        UsageError: there is no run, or two of them do not go together.
        """
        self.paths = tuple(paths)
        with ExitStack() as stack:
            sources = [stack.enter_context(open_run(path)) for path in self.paths]
            each = [source.settings() or {} for source in sources]
            self.sessions = [source.sessions() for source in sources]
            self.places = [
                Place(run, cell) for run, source in enumerate(sources) for cell in source.cells()
            ]
        self.each = each
        self.settings = merged_settings(dict(zip(map(str, self.paths), each, strict=True)))
        self.metrics = primary_metrics(self.settings)

    def explored(
        self,
        numbers: Collection[int],
        indices: Collection[int] | None = None,
        *,
        only_failures_turns: bool = False,
    ) -> Iterator[tuple[int, Explored]]:
        """The finished samples of some cells, or those of them that `indices` numbers (see
        `rollout_of`), with the cells' numbers in `places`. What is right lost nothing, so that
        its turns need not be read to say so: `only_failures_turns`."""
        for run, path in enumerate(self.paths):
            own = {p.cell.id: n for n, p in enumerate(self.places) if p.run == run}
            wanted = [cell for cell, number in own.items() if number in numbers]
            if not wanted:
                continue
            with open_run(path) as source:
                cells = {key_of(cell): cell for cell in source.cells()}
                for row in source.sample_rows(wanted if len(wanted) < len(own) else None):
                    cell = cells[row_key(row)]
                    if indices is None or rollout_of(row, cell) in indices:
                        needed = not only_failures_turns or is_failure(row, self.metric_of(cell))
                        yield own[cell.id], self._explored(source, cell, row, needed)

    def finished(self) -> list[tuple[int, int]]:
        """How many samples of each cell have ended, and how many of these well."""
        found: list[tuple[int, int]] = []
        for path in self.paths:
            with open_run(path) as source:
                counts = source.finished()
                found += [counts.get(cell.id, (0, 0)) for cell in source.cells()]
        return found

    def metric_of(self, cell: Cell) -> str:
        """The metric that stands for a cell's task."""
        return self.metrics.get(cell.task, SUB_EM)

    def _explored(
        self, source: RunSource, cell: Cell, row: Mapping[str, Any], with_turns: bool
    ) -> Explored:
        place = cell.id, row["index"], row["draw"]
        turns = tuple(turn for _, turn in source.turns_of(place)) if with_turns else ()
        return Explored(row, turns, diagnose(row, turns, self.metric_of(cell)))


def rollout_of(row: Mapping[str, Any], cell: Cell) -> int:
    """A row's number in its cell, by which pages ask for it: samples from 0, then those of the
    second draw."""
    return int(row["index"]) + cell.samples * int(row["draw"])


@dataclass(slots=True)
class Table:
    """The columns of runs, kept up to date by `refresh`."""

    runs: Runs
    name: str
    live: bool = False
    version: int = 0
    _samples: list[list[Any]] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)
    _seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    _changed: dict[int, int] = field(default_factory=dict)

    def refresh(self) -> None:
        """Reads the cells in which samples have ended since, or have ended otherwise."""
        finished = self.runs.finished()
        new = [n for n, counts in enumerate(finished) if counts != self._seen.get(n, (0, 0))]
        if not new:
            return
        self.version += 1
        blocks: dict[int, Block] = {number: {} for number in new}
        for number, one in self.runs.explored(new, only_failures_turns=True):
            for column, value in self._values(number, one).items():
                blocks[number].setdefault(column, []).append(value)
        for number in new:
            self.blocks[number] = blocks[number]
            self._seen[number], self._changed[number] = finished[number], self.version

    def data(self, since: int = 0, samples: int = 0) -> dict[str, Any]:
        """What changed after version `since`, for a page that has the first `samples` samples."""
        settings = self.runs.settings
        methods = methods_of(settings)
        cells = [place.cell for place in self.runs.places]
        return {
            "name": self.name,
            "live": self.live,
            "version": self.version,
            "methods": {c.method: look_of(c.method, methods).label for c in cells},
            "models": {c.model: model_label(c.model) for c in cells},
            "causes": {str(cause): [*words] for cause, words in MEANINGS.items()},
            "cells": [[*c.row] for c in cells],
            "samples": self._samples[samples:],
            "blocks": {n: b for n, b in self.blocks.items() if self._changed[n] > since},
        }

    def _values(self, number: int, one: Explored) -> dict[str, Any]:
        """One row, by column."""
        metric = self.runs.metric_of(self.runs.places[number].cell)
        row, diagnosis = one.row, one.diagnosis
        ended = row["status"] == "ok"
        scores = {p: row["scores"].get(p, {}).get(metric) for p in ("strict", "published")}
        answer = row["prediction"] if row["prediction"] is not None else row["reply"]
        return {
            "of": self._sample(row),
            "index": rollout_of(row, self.runs.places[number].cell),
            **{p: _score(value, ended) if metric else None for p, value in scores.items()},
            "cause": str(diagnosis.cause or ""),
            "lost": diagnosis.turn,
            **{name: row[name] for name in COUNTED},
            "seconds": round(row["seconds"], 1),
            "error": row["error_kind"],
            "answer": (answer or "")[:LONGEST_ANSWER],
        }

    def _sample(self, row: Mapping[str, Any]) -> int:
        """The number of the sample itself, which other methods may have met too."""
        if row["id"] not in self._numbers:
            self._numbers[row["id"]] = len(self._samples)
            golds = [str(gold)[:LONGEST_ANSWER] for gold in row["golds"]]
            self._samples.append([row["question"][:LONGEST_QUESTION], golds])
        return self._numbers[row["id"]]


def _score(value: float | None, ended: bool) -> float:
    return round(value or 0.0, 4) if ended else 0


def packed(value: object) -> str:
    """JSON, deflated (zlib's form, as browsers' `DecompressionStream("deflate")` reads it), in
    base64: it holds nothing that a page could take for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
