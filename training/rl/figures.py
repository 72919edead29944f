"""The curves of an RL run."""

from __future__ import annotations

from pathlib import Path


def draw_metrics(metrics: Path, out: Path) -> list[Path]:
    """Write the figures of a metrics.jsonl into `out`; returns their paths."""
    raise NotImplementedError
