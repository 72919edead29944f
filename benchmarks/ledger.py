"""The ledger: for each cell, where every sample went. It must add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from benchmarks.store import Cell, Store

PRIMARY = ("sub_em", "recall")
"""The score of a sample: what was found of the golds; of a summary, its recall."""


@dataclass(slots=True)
class LedgerRow:
    """Counts of samples. samples = attempted + owed; attempted = ok + sum(errors).

    `cut`: samples in which the token budget cut a reply. `unparsed`: samples that ended
    well, with no answer marker in the reply. `scores`: profile -> mean over `attempted`,
    failures counting 0.
    """

    cell: Cell
    attempted: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    unparsed: int = 0
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def owed(self) -> int:
        """Samples not attempted yet."""
        return self.cell.samples - self.attempted


def ledger(store: Store) -> list[LedgerRow]:
    """One row a cell, in the order of the plan."""
    rows = {(c.task, c.length, c.method, c.model): LedgerRow(c) for c in store.cells()}
    for sample in store.sample_rows():
        row = rows[sample["task"], sample["length"], sample["method"], sample["model"]]
        row.attempted += 1
        row.cut += sample["cut_turns"] > 0
        if sample["status"] == "ok":
            row.ok += 1
            row.unparsed += sample["prediction"] is None
        else:
            row.errors[sample["error_kind"]] += 1
        for profile, metrics in sample["scores"].items():
            if (metric := next((m for m in PRIMARY if m in metrics), None)) is not None:
                row.scores[profile] = row.scores.get(profile, 0.0) + metrics[metric]
    for row in rows.values():
        row.scores = {profile: total / row.attempted for profile, total in row.scores.items()}
    return list(rows.values())
