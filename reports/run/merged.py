"""Several runs as one: whose each cell is, their settings, what they cost, one export of all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.store import Cell
from core.errors import UsageError
from reports.run.exported import RunSource, beside_samples, key_of, lines_of, write_export
from reports.run.traces import Key
from serving.limits.budget import Spent

Owners = Mapping[Key, tuple[RunSource, Cell]]

GROUPS = ("models", "methods", "tasks", "data", "outside", "accepted")
"""Settings by name. One name must mean one thing in all runs of a report."""


def owners_of(sources: Iterable[RunSource]) -> Owners:
    """The cells of all runs, each with the one that holds it.

    Raises:
        UsageError: two runs hold the same cell.
    """
    owners: dict[Key, tuple[RunSource, Cell]] = {}
    for source in sources:
        for cell in source.cells():
            key = key_of(cell)
            if key in owners:
                raise UsageError(
                    f"{owners[key][0].path} and {source.path} both hold the cell "
                    f"{' '.join(map(str, key))}. Each cell is taken from one run."
                )
            owners[key] = source, cell
    return owners


def export_runs(sources: Sequence[RunSource], out: Path) -> int:
    """Writes one export of all runs (see exported.py); returns the samples.

    Raises:
        UsageError: two runs hold the same cell, or a model of one name that differs; or the place
            cannot be written to.
    """
    owners_of(sources)
    each = {str(source.path): beside_samples(source) for source in sources}
    run: dict[str, Any] = {
        "settings": merged_settings({path: one["settings"] for path, one in each.items()}),
        "sessions": [session for one in each.values() for session in one["sessions"]],
        "cells": [cell for one in each.values() for cell in one["cells"]],
    }
    spent = merged_spent(source.spent() for source in sources)
    if spent is not None:
        usd: list[float | None] = []
        for one in each.values():
            usd += one["spent"]["by_cell"] if "spent" in one else [None] * len(one["cells"])
        run["spent"] = {**asdict(spent), "by_cell": usd}
    return write_export(out, (line for source in sources for line in lines_of(source)), run)


def merged_settings(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings by the runs' names -> those of all: groups joined, a model's methods joined,
    cells one after another, and of all else each different value once.

    Raises:
        UsageError: two runs hold a model, a task or a file of one name that differ.
    """
    result: dict[str, Any] = {}
    for run, settings in runs.items():
        for key, value in settings.items():
            if key in GROUPS:
                result[key] = _joined(result.get(key, {}), value, f"{key}.", run)
            else:  # lists: cells, and what an export of several runs has of each
                values = value if isinstance(value, list) else [value]
                result[key] = [*result.get(key, []), *values]
    for key, values in result.items():
        if key not in (*GROUPS, "cells"):
            distinct = [v for place, v in enumerate(values) if v not in values[:place]]
            result[key] = distinct[0] if len(distinct) == 1 else distinct
    return result


def merged_spent(runs: Iterable[Spent | None]) -> Spent | None:
    """What several runs have cost together; with a budget where each of them has one."""
    known = [spent for spent in runs if spent is not None]
    limits = [spent.budget_usd for spent in known if spent.budget_usd is not None]
    together = math.fsum(limits) if len(limits) == len(known) else None
    return Spent(math.fsum(spent.usd for spent in known), together) if known else None


def _joined(
    first: Mapping[str, Any], second: Mapping[str, Any], where: str, run: str
) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        if name in first and where == "models.":
            ours, theirs = first[name].get("methods", {}), value.get("methods", {})
            methods = _joined(ours, theirs, f"{where}{name}.methods.", run)
            value = {**value, "methods": methods}
            first_too = {**first[name], "methods": methods}
        else:
            first_too = first.get(name, value)
        if first_too != value:
            raise UsageError(
                f"run {run}: its settings of {where}{name} are not those of the runs before it. "
                "One report shows one thing under one name: report them apart."
            )
        result[name] = value
    return result
