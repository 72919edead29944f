"""From the stores or exports of one run, or of several that belong together, to what a report
knows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ledger import ledger_row, primary_metrics
from benchmarks.store import Cell
from core.errors import StoreError, UsageError
from core.types import Turn
from reports.labels import Series
from reports.run.data import CellStats, Cost, Differing, RunData, RunError
from reports.run.exported import open_run, run_name
from reports.run.merged import Owners, merged_settings, merged_spent, owners_of
from reports.run.traces import Key, read_traces
from reports.statistics.clusters import clusters_of
from reports.statistics.intervals import Estimate, estimate, estimate_drawn
from tasks.scoring import PROFILES, SUB_EM

COUNTS = {"unparsed"}
"""Stored beside the scores but no score: higher is not better. The ledger has it."""


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
        owners = owners_of(sources)
        settings = merged_settings(
            {str(run): s.settings() or {} for run, s in zip(runs, sources, strict=True)}
        )
        metrics = {key[0]: SUB_EM for key in owners} | primary_metrics(settings)
        found = _Found()
        priced = {source.path: source.usd_by_cell() for source in sources if source.spent()}
        for key, (source, cell) in owners.items():  # one at a time: a run may have 100,000 samples
            usd = priced[source.path].get(cell.id, 0.0) if source.path in priced else None
            found.add(key, cell, list(source.sample_rows([cell.id])), metrics[key[0]], usd)
        if not any(cell.finished for cell in found.cells):
            raise UsageError(_nothing(owners))

        def rollout_of(key: Key, index: int) -> tuple[Mapping[str, Any], list[Turn]]:
            source, cell = owners[key]
            rows = source.sample_rows([cell.id])
            row = next(row for row in rows if (row["index"], row["draw"]) == (index, 0))
            return row, [turn for _, turn in source.turns_of((cell.id, index, 0))]

        return RunData(
            " + ".join(map(run_name, runs)),
            settings,
            [session for source in sources for session in source.sessions()],
            tuple(found.cells),
            found.run_errors(),
            tuple(read_traces(found.ended, rollout_of, metrics)),
            tuple(found.differing),
            merged_spent(source.spent() for source in sources),
        )


@dataclass(slots=True)
class _Found:
    """What has been read so far, cell by cell. `ended`: {cell: {index: sample id}}, of the samples
    whose first draw has ended."""

    cells: list[CellStats] = field(default_factory=list)
    ended: dict[Key, Mapping[int, str]] = field(default_factory=dict)
    differing: list[Differing] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    first_errors: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(
        self,
        key: Key,
        cell: Cell,
        rows: Sequence[Mapping[str, Any]],
        metric: str,
        usd: float | None,
    ) -> None:
        """Takes in the samples of a cell that have ended, and what the cell cost."""
        self.cells.append(_cell(cell, rows, metric, usd))
        self.ended[key] = {row["index"]: row["id"] for row in rows if row["draw"] == 0}
        self.differing += _differing(rows, metric) if metric else []
        for row in rows:
            if row["status"] != "ok":
                self.errors[row["error_kind"]] += 1
                self.first_errors.setdefault(row["error_kind"], row)

    def run_errors(self) -> tuple[RunError, ...]:
        """The kinds of errors, the most frequent first."""
        return tuple(
            RunError(kind, count, _where(self.first_errors[kind]), self.first_errors[kind]["error"])
            for kind, count in self.errors.most_common()
        )


def _where(row: Mapping[str, Any]) -> str:
    return " · ".join(str(row[k]) for k in ("task", "length", "method", "model", "index"))


def _nothing(owners: Owners) -> str:
    paths = dict.fromkeys(str(source.path) for source, _ in owners.values())
    return (
        f"{', '.join(paths)}: no sample of {sum(cell.rollouts for _, cell in owners.values())} has "
        "ended yet, so there is nothing to report. Let the sweep go on for a while first."
    )


def _cell(
    cell: Cell, rows: Sequence[Mapping[str, Any]], metric: str, usd: float | None
) -> CellStats:
    known = all(row["cut_turns"] is not None for row in rows)
    counted = ledger_row(cell, [{**row, "cut_turns": row["cut_turns"] or 0} for row in rows])
    ok = [row for row in rows if row["status"] == "ok"]
    clusters = clusters_of({row["id"]: row for row in rows}.values())
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
        scores=_scores(rows, metric, clusters) if rows and metric else {},
        by_sample={
            profile: {
                sample: math.fsum(drawn) / len(drawn)
                for sample, drawn in _by_sample(rows if metric else [], profile, metric).items()
            }
            for profile in PROFILES
        },
        clusters=clusters,
        cost=_cost(ok),
        counts=_counts(ok),
        usd=usd,
    )


def _scores(
    rows: Sequence[Mapping[str, Any]], primary: str, clusters: Mapping[str, int]
) -> dict[str, dict[str, Estimate]]:
    """Every metric of both profiles, and of any other that the store has (`ruler`)."""
    ok = [row["scores"] for row in rows if row["status"] == "ok"]
    names: dict[str, set[str]] = {profile: {primary} for profile in PROFILES}
    for scores in ok:
        for profile, metrics in scores.items():
            names.setdefault(profile, set()).update(metrics.keys() - COUNTS)
    return {
        profile: {
            name: _estimate(_by_sample(rows, profile, name), clusters) for name in sorted(found)
        }
        for profile, found in names.items()
    }


def _estimate(drawn: Mapping[str, Sequence[float]], clusters: Mapping[str, int]) -> Estimate:
    """The mean of the draws of samples, of which some go together if there are `clusters`."""
    if not clusters:
        return estimate_drawn(list(drawn.values()))
    scores = [(score, clusters[sample]) for sample, found in drawn.items() for score in found]
    return estimate([score for score, _ in scores], [cluster for _, cluster in scores])


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


def _differing(rows: Iterable[Mapping[str, Any]], metric: str) -> Iterator[Differing]:
    """The answers that the two profiles score differently."""
    for row in rows:
        published, strict = (_score(row, profile, metric) for profile in ("published", "strict"))
        if published != strict:
            yield Differing(
                *(row["task"], row["length"], Series(row["method"], row["model"])),
                *(row["index"], row["draw"], row["id"], row["question"]),
                tuple(str(gold) for gold in row["golds"]),
                row["prediction"],
                row["reply"],
                published=published,
                strict=strict,
            )
