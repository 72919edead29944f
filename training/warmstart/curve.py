"""Draws a run's curve.jsonl: the loss, and exact match on held-out turns by kind of turn."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

COLOURS, DASHES = 10, ("-", "--", ":")
"""Of matplotlib's cycle; and what tells two tasks of one colour apart."""
KINDS = ("update", "keep", "gru_memory", "answer", "full_context")


def draw_curve(folder: Path) -> Path:
    """Write curve.png beside curve.jsonl; a line a task, a panel a kind of turn."""
    lines = (folder / "curve.jsonl").read_text(encoding="utf-8").splitlines()
    if not lines:
        raise ValueError(f"{folder / 'curve.jsonl'} is empty: nothing to draw")
    rows = [json.loads(line) for line in lines]
    steps = [row["step"] for row in rows]
    figure = Figure(figsize=(14, 5.5), layout="constrained")
    panels = figure.subplots(2, 4).flat
    loss = next(panels)
    loss.plot(steps, [row["loss"] for row in rows], color="black")
    loss.set(title="loss on replies (nats a token)", yscale="log")
    tasks = sorted({name.partition("/")[2] for name in rows[-1] if "/" in name})
    for kind in KINDS:
        panel = next(panels)
        for number, task in enumerate(tasks):
            values = [row.get(f"{kind}/{task}", float("nan")) for row in rows]
            style = DASHES[number // COLOURS % len(DASHES)]
            panel.plot(steps, values, style, label=task)
        panel.set(title=f"{kind}: exact match, held out", ylim=(-0.03, 1.03))
    key = next(panels)
    for empty in (key, *panels):
        empty.axis("off")
    handles, labels = panel.get_legend_handles_labels()
    key.legend(handles, labels, loc="center", frameon=False)
    figure.supxlabel("optimizer steps")
    figure.savefig(folder / "curve.png", dpi=110)
    return folder / "curve.png"
