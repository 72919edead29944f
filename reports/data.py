"""From the store of a run to numbers a cell.

A failed sample is in every denominator and scores 0. A cell with samples still owed is
`partial` and is marked wherever it is shown. Costs are means over the samples that ended
well, since a failed one stopped somewhere on the way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.store import Cell, Store
from core.errors import StoreError, UsageError
from reports.intervals import Estimate, average, estimate
from reports.labels import PROFILES, Series
from reports.traces import Trace, read_traces

PRIMARY_METRIC = "sub_em"
COUNTS = {"unparsed"}
"""Stored beside the scores but no score: higher is not better. The ledger has it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one sample took, as means over the samples that ended well (NaN if none did).

    `seconds` is the summed wall time of its requests; `truncated_tokens` is how many context
    tokens the method never saw.
    """

    turns: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float
    truncated_tokens: float


@dataclass(frozen=True, slots=True)
class CellStats:
    """One cell of the run: what was asked, what came out.

    `samples` were asked for, `finished` have ended: `ok` of them well, the others by the
    errors counted in `errors`. `cut_samples` have at least one reply that the token budget
    cut, `cut_turns` counts those replies. `unparsed` ended well but held no answer marker.
    `scores` is {profile: {metric: estimate}}, empty before the first sample has ended.
    `counts` are means of what the method itself counts (chunks read, turns not parsed), over
    the samples that ended well.
    """

    task: str
    length: int
    series: Series
    samples: int
    ok: int
    errors: Mapping[str, int]
    cut_samples: int
    cut_turns: int
    unparsed: int
    metric: str
    scores: Mapping[str, Mapping[str, Estimate]]
    cost: Cost
    counts: Mapping[str, float]

    @property
    def failed(self) -> int:
        """Samples that ended in an error."""
        return sum(self.errors.values())

    @property
    def finished(self) -> int:
        """Samples that have ended, well or in an error: the denominator of every score."""
        return self.ok + self.failed

    @property
    def owed(self) -> int:
        """Samples that have not ended yet."""
        return self.samples - self.finished

    def score(self, profile: str) -> Estimate | None:
        """The primary metric's mean, None before the first sample has ended."""
        return self.scores[profile][self.metric] if self.finished else None


@dataclass(frozen=True, slots=True)
class RunError:
    """One kind of error: how often, and what the first of them said."""

    kind: str
    count: int
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Point:
    """A score of a series at a length, of one task or averaged over tasks."""

    length: int
    value: Estimate
    finished: int
    samples: int

    @property
    def partial(self) -> bool:
        """Samples are still owed: the number may move."""
        return self.finished < self.samples


@dataclass(frozen=True, slots=True)
class RunData:
    """All that a report needs of a run, read in one pass."""

    name: str
    settings: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]
    cells: tuple[CellStats, ...]
    errors: tuple[RunError, ...]
    traces: tuple[Trace, ...]

    @property
    def tasks(self) -> list[str]:
        """Tasks in the order of the plan."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def all_series(self) -> list[Series]:
        """Methods x models in the order of the plan."""
        return list(dict.fromkeys(cell.series for cell in self.cells))

    @property
    def lengths(self) -> list[int]:
        """Lengths in tokens, ascending."""
        return sorted({cell.length for cell in self.cells})

    def model(self, name: str) -> Mapping[str, Any]:
        """The settings' entry of a model, empty if there is none."""
        entry = (self.settings.get("models") or {}).get(name)
        return entry if isinstance(entry, dict) else {}

    def find(self, task: str, series: Series, length: int) -> CellStats | None:
        """The cell, None if the suite has none there."""
        matches = (c for c in self.cells if c.task == task and c.series == series)
        return next((cell for cell in matches if cell.length == length), None)

    def line(self, task: str | None, series: Series, profile: str) -> list[Point]:
        """The points of a series, lengths ascending; `task` None averages over all tasks.

        The average of a length exists only where every task of the run has a finished
        sample, so that no two of its points are averages of different tasks.
        """
        points = []
        for length in self.lengths:
            found = [self.find(t, series, length) for t in ([task] if task else self.tasks)]
            cells = [cell for cell in found if cell is not None]
            scores = [score for cell in cells if (score := cell.score(profile)) is not None]
            if not found or len(scores) < len(found):
                continue
            value = average(scores) if len(scores) > 1 else scores[0]
            counts = sum(c.finished for c in cells), sum(c.samples for c in cells)
            points.append(Point(length, value, *counts))
        return points


def load_run(run_dir: Path) -> RunData:
    """Reads a run, finished or in progress.

    Raises:
        UsageError: there is no run, or no sample of it has ended yet.
        StoreError: the store is damaged, or a finished sample has no score.
    """
    with Store.read(run_dir) as store:
        cells = store.cells()
        rows: dict[tuple[str, int, str, str], list[dict[str, Any]]] = {}
        for row in store.sample_rows():
            key = row["task"], row["length"], row["method"], row["model"]
            rows.setdefault(key, []).append(row)
        if not rows:
            raise UsageError(
                f"{run_dir}: no sample of {sum(c.samples for c in cells)} has ended yet, so "
                "there is nothing to report. Let the sweep go on for a while first."
            )
        metrics = _primary_metrics(row for group in rows.values() for row in group)
        stats = [
            _cell(c, rows.get((c.task, c.length, c.method, c.model), []), metrics) for c in cells
        ]
        return RunData(
            run_dir.resolve().name,
            store.settings() or {},
            store.sessions(),
            tuple(stats),
            _errors(row for group in rows.values() for row in group),
            tuple(read_traces(store, cells, rows)),
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
        *(mean("turns"), mean("prompt_tokens"), mean("completion_tokens")),
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
