"""The ledger: for each cell, where every sample went. It must add up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.store import Cell, Store


@dataclass(slots=True)
class LedgerRow:
    """Counts of samples, each draw of one by itself. samples x draws = attempted + owed;
    attempted = ok + sum(errors).

    `cut`: samples in which the token budget cut a reply, `cut_turns` those replies. `unparsed`:
    samples that ended well, with no answer marker in the reply. `scores`: profile -> mean of the
    task's primary metric over `attempted`, failures counting 0. `usd`: what an endpoint took for
    the cell's turns, where its prices were given.
    """

    cell: Cell
    attempted: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    cut_turns: int = 0
    unparsed: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    usd: float = 0.0

    @property
    def owed(self) -> int:
        """Samples not attempted yet."""
        return self.cell.rollouts - self.attempted


def ledger(store: Store) -> list[LedgerRow]:
    """One row a cell, in the order of the plan."""
    metrics = primary_metrics(store.settings() or {})
    cells = store.cells()
    rows: dict[tuple[str, int, str, str], list[Mapping[str, Any]]] = {
        (cell.task, cell.length, cell.method, cell.model): [] for cell in cells
    }
    for found in store.sample_rows():
        rows[found["task"], found["length"], found["method"], found["model"]].append(found)
    counted = [
        ledger_row(cell, group, metrics.get(cell.task))
        for cell, group in zip(cells, rows.values(), strict=True)
    ]
    usd = store.usd_by_cell()
    for row in counted:
        row.usd = usd.get(row.cell.id, 0.0)
    return counted


def ledger_row(
    cell: Cell, rows: Iterable[Mapping[str, Any]], metric: str | None = None
) -> LedgerRow:
    """Counts the samples of a cell that have ended, as `Store.sample_rows` gives them. Without
    `metric` it has no scores."""
    counted = LedgerRow(cell)
    totals: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        counted.attempted += 1
        counted.cut += row["cut_turns"] > 0
        counted.cut_turns += row["cut_turns"]
        if row["status"] != "ok":
            counted.errors[row["error_kind"]] += 1
            continue
        counted.ok += 1
        counted.unparsed += row["prediction"] is None
        for profile, metrics in row["scores"].items():
            if metric in metrics:
                totals[profile] += metrics[metric]
    counted.scores = {profile: total / counted.attempted for profile, total in totals.items()}
    return counted


def primary_metrics(settings: Mapping[str, Any]) -> dict[str, str]:
    """The metric that stands for each task of a run, out of the run's settings."""
    return {name: str(task["metric"]) for name, task in settings.get("tasks", {}).items()}
