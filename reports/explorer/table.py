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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reports.causes.cause import MEANINGS
from reports.causes.diagnosed import Diagnosed, Runs, rollout_of
from reports.labels import look_of, methods_of, model_label

LONGEST_QUESTION, LONGEST_ANSWER = 300, 120
"""Characters of them that the table has."""
COUNTED = ("turns", "prompt_tokens", "completion_tokens", "cut_turns")

Block = dict[str, list[Any]]


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

    def refresh(self, also: Callable[[Diagnosed], None] | None = None) -> None:
        """Reads the cells in which samples have ended since, or have ended otherwise. `also` is
        handed each of their samples, with its turns."""
        finished = self.runs.finished()
        new = [n for n, counts in enumerate(finished) if counts != self._seen.get(n, (0, 0))]
        if not new:
            return
        self.version += 1
        blocks: dict[int, Block] = {number: {} for number in new}
        for one in self.runs.diagnosed(blocks.keys(), only_failures_turns=also is None):
            for column, value in self._values(one).items():
                blocks[one.number].setdefault(column, []).append(value)
            if also is not None:
                also(one)
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

    def _values(self, one: Diagnosed) -> dict[str, Any]:
        """One row, by column."""
        metric = self.runs.metric_of(one.cell)
        row, diagnosis = one.row, one.diagnosis
        ended = row["status"] == "ok"
        scores = {p: row["scores"].get(p, {}).get(metric) for p in ("strict", "published")}
        answer = row["prediction"] if row["prediction"] is not None else row["reply"]
        return {
            "of": self._sample(row),
            "index": rollout_of(row, one.cell),
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
