"""From the stores of one run, or of several that belong together, to what a report knows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.store import Cell, Store
from core.errors import StoreError, UsageError
from core.types import Turn
from reports.labels import PROFILES, Series
from reports.run.data import CellStats, Cost, RunData, RunError
from reports.run.merged import merged_settings
from reports.run.traces import Key, read_traces
from reports.statistics.intervals import Estimate, estimate

PRIMARY_METRIC = "sub_em"
COUNTS = {"unparsed"}
"""Stored beside the scores but no score: higher is not better. The ledger has it."""


def load_run(run_dir: Path) -> RunData:
    """Reads a run, finished or in progress. See `load_runs`."""
    return load_runs([run_dir])


def load_runs(run_dirs: Sequence[Path]) -> RunData:
    """Reads runs, finished or in progress, as if all their cells were those of one.

    Raises:
        UsageError: there is no run, no sample has ended yet, or two runs hold the same cell,
            or the same model with other settings.
        StoreError: a store is damaged, or a finished sample has no score.
    """
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.read(run_dir)) for run_dir in run_dirs]
        owners: dict[Key, tuple[Store, Cell]] = {}
        rows: dict[Key, list[dict[str, Any]]] = {}
        for store in stores:
            for cell in store.cells():
                key = cell.task, cell.length, cell.method, cell.model
                if key in owners:
                    raise UsageError(
                        f"{owners[key][0].path.parent} and {store.path.parent} both hold the cell "
                        f"{' '.join(map(str, key))}. A report takes each cell from one run."
                    )
                owners[key] = store, cell
                rows[key] = []
            for row in store.sample_rows():
                rows[row["task"], row["length"], row["method"], row["model"]].append(row)
        every_row = [row for group in rows.values() for row in group]
        if not every_row:
            raise UsageError(
                f"{', '.join(map(str, run_dirs))}: no sample of "
                f"{sum(cell.samples for _, cell in owners.values())} has ended yet, so "
                "there is nothing to report. Let the sweep go on for a while first."
            )

        def turns_of(key: Key, index: int) -> list[Turn]:
            store, cell = owners[key]
            return [turn for _, turn in store.turns_of(cell.id, index)]

        metrics = _primary_metrics(every_row)
        settings = {str(s.path.parent): s.settings() or {} for s in stores}
        return RunData(
            " + ".join(run_dir.resolve().name for run_dir in run_dirs),
            merged_settings(settings),
            [session for store in stores for session in store.sessions()],
            tuple(_cell(cell, rows[key], metrics) for key, (_, cell) in owners.items()),
            _errors(every_row),
            tuple(read_traces(rows, turns_of)),
        )


def _primary_metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The metric that stands for each task: `sub_em`, or the only one that there is."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for profile in PROFILES:
            metrics = row["scores"].get(profile, {}).keys() - COUNTS
            found.setdefault(row["task"], set()).update(metrics)
    chosen = {}
    for task, names in found.items():
        if not names:  # nothing of the task has ended well yet
            continue
        if PRIMARY_METRIC not in names and len(names) > 1:
            raise StoreError(
                f"task {task}: got the metrics {', '.join(sorted(names))}, expected "
                f"{PRIMARY_METRIC} among them, or a single one. Give the task a {PRIMARY_METRIC}."
            )
        chosen[task] = PRIMARY_METRIC if PRIMARY_METRIC in names else next(iter(names))
    return chosen


def _cell(cell: Cell, rows: Sequence[Mapping[str, Any]], metrics: Mapping[str, str]) -> CellStats:
    ok = [row for row in rows if row["status"] == "ok"]
    cut = [row["cut_turns"] for row in rows if row["cut_turns"]]
    metric = metrics.get(cell.task, PRIMARY_METRIC)
    return CellStats(
        task=cell.task,
        length=cell.length,
        series=Series(cell.method, cell.model),
        samples=cell.samples,
        ok=len(ok),
        errors=dict(sorted(Counter(r["error_kind"] for r in rows if r["status"] != "ok").items())),
        cut_samples=len(cut),
        cut_turns=sum(cut),
        unparsed=sum(row["prediction"] is None for row in ok),
        metric=metric,
        scores=_scores(rows, metric) if rows else {},
        by_sample={
            profile: {row["id"]: _score(row, profile, metric) for row in rows}
            for profile in PROFILES
        },
        cost=_cost(ok),
        counts=_counts(ok),
    )


def _scores(rows: Sequence[Mapping[str, Any]], primary: str) -> dict[str, dict[str, Estimate]]:
    """Every metric of both profiles, and of any other that the store has (`ruler`)."""
    ok = [row["scores"] for row in rows if row["status"] == "ok"]
    names: dict[str, set[str]] = {profile: {primary} for profile in PROFILES}
    for scores in ok:
        for profile, metrics in scores.items():
            names.setdefault(profile, set()).update(metrics.keys() - COUNTS)
    return {
        profile: {
            name: estimate([_score(row, profile, name) for row in rows]) for name in sorted(found)
        }
        for profile, found in names.items()
    }


def _score(row: Mapping[str, Any], profile: str, metric: str) -> float:
    if row["status"] != "ok":
        return 0.0  # a failure counts, whatever was stored beside it
    value = row["scores"].get(profile, {}).get(metric)
    where = f"{row['task']} {row['length']} {row['method']} {row['model']} sample {row['index']}"
    if value is None:
        raise StoreError(
            f"{where}: no score `{metric}` under `{profile}`. The sample ended well, so the "
            "store should have one; it was written by another version of this project."
        )
    if not 0.0 <= value <= 1.0:
        raise StoreError(f"{where}: got {profile}.{metric} = {value}, expected 0 to 1.")
    return float(value)


def _cost(ok: Sequence[Mapping[str, Any]]) -> Cost:
    def mean(name: str) -> float:
        return math.fsum(row[name] for row in ok) / len(ok) if ok else math.nan

    return Cost(
        *(mean("turns"), mean("memory_turns")),
        *(mean("prompt_tokens"), mean("completion_tokens")),
        *(mean("seconds"), mean("truncated_tokens")),
    )


def _counts(ok: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for row in ok:
        totals.update(row.get("counts", {}))
    return {name: total / len(ok) for name, total in sorted(totals.items())}


def _errors(rows: Iterable[Mapping[str, Any]]) -> tuple[RunError, ...]:
    counts: Counter[str] = Counter()
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["status"] != "ok":
            counts[row["error_kind"]] += 1
            first.setdefault(row["error_kind"], row)
    return tuple(
        RunError(
            kind,
            count,
            " · ".join(str(first[kind][k]) for k in ("task", "length", "method", "model", "index")),
            first[kind]["error"],
        )
        for kind, count in counts.most_common()
    )
