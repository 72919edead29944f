"""From the stores or exports of one run, or of several that belong together, to what a report
knows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.ledger import ledger_row, primary_metrics
from benchmarks.store import Cell
from core.errors import StoreError, UsageError
from core.types import Turn
from reports.labels import Series
from reports.run.data import CellStats, Cost, RunData, RunError
from reports.run.exported import RunSource, key_of, open_run, row_key, run_name
from reports.run.merged import merged_settings
from reports.run.traces import Key, read_traces
from reports.statistics.intervals import Estimate, estimate_drawn
from tasks.scoring import PROFILES, SUB_EM

COUNTS = {"unparsed"}
"""Stored beside the scores but no score: higher is not better. The ledger has it."""

Owners = Mapping[Key, tuple[RunSource, Cell]]
Rows = Mapping[Key, list[dict[str, Any]]]


def load_run(run: Path) -> RunData:
    """Reads a run, finished or in progress. See `load_runs`."""
    return load_runs([run])


def load_runs(runs: Sequence[Path]) -> RunData:
    """Reads runs, finished or in progress, as if all their cells were those of one. Each is the
    folder of a store, or a file that `run.py export` wrote.

    Raises:
        UsageError: there is no run, no sample has ended yet, or two runs hold the same cell,
            or the same model with other settings.
        StoreError: a store is damaged, or a finished sample has no score.
    """
    with ExitStack() as stack:
        sources = [stack.enter_context(open_run(run)) for run in runs]
        owners = _owners(sources)
        rows = _rows(sources, owners)
        every_row = [row for group in rows.values() for row in group]

        def turns_of(key: Key, index: int, draw: int) -> list[Turn]:
            source, cell = owners[key]
            return [turn for _, turn in source.turns_of((cell.id, index, draw))]

        settings = merged_settings(
            {str(run): s.settings() or {} for run, s in zip(runs, sources, strict=True)}
        )
        metrics = {key[0]: SUB_EM for key in owners} | primary_metrics(settings)
        return RunData(
            " + ".join(map(run_name, runs)),
            settings,
            [session for source in sources for session in source.sessions()],
            tuple(_cell(cell, rows[key], metrics[key[0]]) for key, (_, cell) in owners.items()),
            _errors(every_row),
            tuple(read_traces(rows, turns_of, metrics)),
        )


def _owners(sources: Iterable[RunSource]) -> Owners:
    """The cells of all runs, each with the one that holds it."""
    owners: dict[Key, tuple[RunSource, Cell]] = {}
    for source in sources:
        for cell in source.cells():
            key = key_of(cell)
            if key in owners:
                raise UsageError(
                    f"{owners[key][0].path} and {source.path} both hold the cell "
                    f"{' '.join(map(str, key))}. A report takes each cell from one run."
                )
            owners[key] = source, cell
    return owners


def _rows(sources: Iterable[RunSource], owners: Owners) -> Rows:
    """The samples that have ended, by their cells."""
    rows: dict[Key, list[dict[str, Any]]] = {key: [] for key in owners}
    for source in sources:
        for row in source.sample_rows():
            rows[row_key(row)].append(row)
    if not any(rows.values()):
        raise UsageError(
            f"{', '.join(dict.fromkeys(str(source.path) for source, _ in owners.values()))}: no "
            f"sample of {sum(cell.rollouts for _, cell in owners.values())} has ended yet, so "
            "there is nothing to report. Let the sweep go on for a while first."
        )
    return rows


def _cell(cell: Cell, rows: Sequence[Mapping[str, Any]], metric: str) -> CellStats:
    known = all(row["cut_turns"] is not None for row in rows)
    counted = ledger_row(cell, [{**row, "cut_turns": row["cut_turns"] or 0} for row in rows])
    ok = [row for row in rows if row["status"] == "ok"]
    return CellStats(
        task=cell.task,
        length=cell.length,
        series=Series(cell.method, cell.model),
        samples=cell.samples,
        draws=cell.draws,
        ok=counted.ok,
        errors=dict(sorted(counted.errors.items())),
        cut_samples=counted.cut if known else None,
        cut_turns=counted.cut_turns if known else None,
        unparsed=counted.unparsed,
        metric=metric,
        scores=_scores(rows, metric) if rows else {},
        by_sample={
            profile: {
                sample: math.fsum(drawn) / len(drawn)
                for sample, drawn in _by_sample(rows, profile, metric).items()
            }
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
            name: estimate_drawn(list(_by_sample(rows, profile, name).values()))
            for name in sorted(found)
        }
        for profile, found in names.items()
    }


def _by_sample(
    rows: Sequence[Mapping[str, Any]], profile: str, metric: str
) -> dict[str, list[float]]:
    """Sample id -> the scores of its draws."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(_score(row, profile, metric))
    return found


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
