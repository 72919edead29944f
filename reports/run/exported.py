"""A run outside its store: `samples.jsonl.gz`, a line a sample, and beside it
`samples.run.json`, with the settings, every start of the command and the cells.

A report, and scoring again, take either; what only the store has are the turns themselves.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from benchmarks.store import Cell, Place, Store
from core.errors import UsageError
from core.files import read_jsonl, write_jsonl, write_whole
from core.types import Turn
from serving.limits.budget import Spent

EXPORTED = (
    *("id", "task", "length", "method", "model", "index", "draw", "question", "golds", "reply"),
    *("prediction", "status", "error_kind", "error", "scores", "turns", "memory_turns"),
    *("cut_turns", "prompt_tokens", "completion_tokens", "seconds", "truncated_tokens"),
    *("counts", "meta", "evidence"),
)
"""Fields of a line: those of `Store.sample_rows`. Without `draw` it is the first."""


class RunSource(Protocol):
    """What a run is read from: its store, or an export of it. See `benchmarks.store.Store`."""

    @property
    def path(self) -> Path: ...
    def settings(self) -> dict[str, Any] | None: ...
    def sessions(self) -> list[dict[str, Any]]: ...
    def cells(self) -> list[Cell]: ...
    def finished(self) -> dict[int, tuple[int, int]]: ...
    def spent(self) -> Spent | None: ...
    def usd_by_cell(self) -> Mapping[int, float | None]: ...
    def sample_rows(self, cells: Collection[int] | None = None) -> Iterator[dict[str, Any]]: ...
    def turns_of(self, place: Place) -> Sequence[tuple[str, Turn]]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ExportedRun:
    """An export, read as a store is. `cut_turns` of a sample may be None: not known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        beside = sidecar(path)
        try:
            self._run = json.loads(beside.read_text(encoding="utf-8"))
            self._cells = [Cell(n, *cell) for n, cell in enumerate(self._run["cells"], 1)]
        except FileNotFoundError as error:
            raise UsageError(
                f"{path}: {beside.name} is not beside it; `run.py export` writes both"
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{beside}: not what `run.py export` writes: {error!r}") from error

    def settings(self) -> dict[str, Any] | None:
        """See `Store.settings`."""
        found: dict[str, Any] | None = self._run.get("settings")
        return found

    def sessions(self) -> list[dict[str, Any]]:
        """See `Store.sessions`."""
        return list(self._run.get("sessions", ()))

    def cells(self) -> list[Cell]:
        """See `Store.cells`."""
        return self._cells

    def finished(self) -> dict[int, tuple[int, int]]:
        """See `Store.finished`."""
        ids = {key_of(cell): cell.id for cell in self._cells}
        ended: Counter[int] = Counter()
        well: Counter[int] = Counter()
        for row in self.sample_rows():
            ended[ids[row_key(row)]] += 1
            well[ids[row_key(row)]] += row["status"] == "ok"
        return {cell: (count, well[cell]) for cell, count in ended.items()}

    def spent(self) -> Spent | None:
        """See `Store.spent`."""
        found = self._run.get("spent")
        return Spent(found["usd"], found["budget_usd"]) if found else None

    def usd_by_cell(self) -> dict[int, float | None]:
        """See `Store.usd_by_cell`; None where prices were given for other cells only."""
        return dict(enumerate(self._run.get("spent", {}).get("by_cell", ()), 1))

    def sample_rows(self, cells: Collection[int] | None = None) -> Iterator[dict[str, Any]]:
        """See `Store.sample_rows`.

        Raises:
            UsageError: a line is no sample of the run; names it.
        """
        if cells is not None:
            for cell in sorted(cells):
                yield from self._by_cell[cell]
            return
        known = {key_of(one) for one in self._cells}
        for number, row in read_jsonl(self.path):
            row.setdefault("draw", 0)
            if lacking := [name for name in EXPORTED if name not in row]:
                raise UsageError(
                    f"{self.path}, line {number}: lacks {', '.join(lacking)}; export the run again"
                )
            if row_key(row) not in known:
                raise UsageError(
                    f"{self.path}, line {number}: {row_key(row)} is no cell of "
                    f"{sidecar(self.path).name}; the two files must be of one export"
                )
            yield row

    @cached_property
    def _by_cell(self) -> Mapping[int, Sequence[dict[str, Any]]]:
        numbers = {key_of(cell): cell.id for cell in self._cells}
        found: dict[int, list[dict[str, Any]]] = {cell.id: [] for cell in self._cells}
        for row in self.sample_rows():
            found[numbers[row_key(row)]].append(row)
        return found

    def turns_of(self, place: Place) -> list[tuple[str, Turn]]:
        """None: an export has no turns."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def open_run(path: Path) -> RunSource:
    """A run's folder, or a file that `run.py export` wrote.

    Raises:
        UsageError: it is neither.
        StoreError: the store is damaged.
    """
    return ExportedRun(path) if path.is_file() else Store.read(path)


def run_name(path: Path) -> str:
    """What a run is called: its folder, or its file without endings."""
    return sidecar(path).name.removesuffix(".run.json") if path.is_file() else path.resolve().name


def lines_of(source: RunSource) -> Iterator[dict[str, Any]]:
    """A line a sample of a run."""
    return ({name: row[name] for name in EXPORTED} for row in source.sample_rows())


def write_export(out: Path, rows: Iterator[Mapping[str, Any]], run: Mapping[str, Any]) -> int:
    """Writes both files (the name's ending says whether packed), `run` beside the samples; returns
    the samples.

    Raises:
        UsageError: the place cannot be written to.
    """
    count = write_jsonl(out, rows)
    write_whole(sidecar(out), _readable(run))
    return count


def beside_samples(source: RunSource) -> dict[str, Any]:
    """All of a run but its samples and turns, as JSON: settings, sessions, cells, and where prices
    were given what it has `spent`, in all and by cell."""
    cells, usd, spent = source.cells(), source.usd_by_cell(), source.spent()
    run: dict[str, Any] = {
        "settings": source.settings() or {},
        "sessions": source.sessions(),
        "cells": [list(cell.row) for cell in cells],
    }
    if spent is not None:
        by_cell = [usd.get(cell.id, 0.0) for cell in cells]
        run["spent"] = {**asdict(spent), "by_cell": by_cell}
    return run


def _readable(run: Mapping[str, Any]) -> str:
    """As JSON, a line a value; lists of plain values take one line. (No text of JSON has a raw
    newline in it, so none is changed.)"""
    text = json.dumps(run, ensure_ascii=False, indent=1)
    return re.sub(r"\[\n\s*([^\[\]{}]*?)\n\s*\]", _in_one_line, text) + "\n"


def _in_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r",\n\s*", ", ", found[1]) + "]"


def sidecar(path: Path) -> Path:
    """`samples.jsonl.gz` -> `samples.run.json`."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    return path.with_name(f"{name}.run.json")


def key_of(cell: Cell) -> tuple[str, int, str, str]:
    """Task, length, method, model."""
    return cell.task, cell.length, cell.method, cell.model


def row_key(row: Mapping[str, Any]) -> tuple[str, int, str, str]:
    """The cell that a sample is of."""
    return row["task"], row["length"], row["method"], row["model"]
