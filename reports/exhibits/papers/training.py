"""GRU-Mem's curves of training (Figures 8, 21, 22), from the metrics of RL runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.papers.gru_mem import PAPER
from reports.exhibits.tables import csv_of
from reports.figures.style import PRINT
from reports.figures.training.metrics import METRICS_FILE, Run, read_metrics
from reports.figures.training.pages import page_of
from reports.figures.training.panels import Panel, one_quantity

Quantity = tuple[str, str, float | None, float | None]
"""A panel: its title, the metric, and where its axis begins and ends (None: by the numbers)."""

FIGURE_8: tuple[Quantity, ...] = (
    ("(a) update accuracy, chunks with evidence", "update_accuracy_present", 0.0, 1.0),
    ("(b) update accuracy, chunks without", "update_accuracy_free", 0.0, 1.0),
    ("(c) share of exact exits", "exit_exact", 0.0, 1.0),
    ("(d) validation reward (strict accuracy)", "validation/strict", 0.0, 1.0),
)
FIGURE_21: tuple[Quantity, ...] = (
    ("(a) rollouts in format", "format", 0.0, 1.0),
    ("(b) tokens a reply", "reply_tokens", 0.0, None),
    ("(c) absolute exit deviation (chunks)", "exit_deviation_absolute", 0.0, None),
    ("(d) exit deviation (chunks, late is above 0)", "exit_deviation", None, None),
)
FIGURE_22: tuple[Quantity, ...] = (
    ("reward a rollout", "reward", None, None),
    ("outcome", "outcome", 0.0, 1.0),
    ("turns a rollout", "turns", 0.0, None),
    ("entropy (nats a token)", "entropy", 0.0, None),
    ("KL to the reference (nats a token)", "kl", 0.0, None),
    ("clip fraction", "clip_fraction", 0.0, None),
)
NOTE = "One line a run (the paper's: alpha 1.0, 0.9, 0.5)."


def _draw(title: str, quantities: Sequence[Quantity], material: Material) -> Drawn | None:
    runs = [read_metrics(folder / METRICS_FILE) for folder in material.training]
    shown = [q for q in quantities if any(len(run.points(q[1])[0]) for run in runs)]
    if not shown:
        return None
    panels: list[Panel] = [
        one_quantity(runs, name, metric, floor=floor, top=top)
        for name, metric, floor, top in quantities
    ]
    figure = page_of(runs, title, panels, columns=2, note=NOTE, sheet=PRINT)
    return Drawn({"": figure}, texts={".csv": _csv(runs, quantities)})


def _csv(runs: Sequence[Run], quantities: Sequence[Quantity]) -> str:
    return csv_of(
        {"run": run.name, "metric": metric, "step": int(step), "value": value}
        for run in runs
        for _, metric, _, _ in quantities
        for step, value in zip(*run.points(metric), strict=True)
    )


def _exhibit(number: str, title: str, shows: str, quantities: Sequence[Quantity]) -> Exhibit:
    whole = f"GRU-Mem, Figure {number}: {title}"
    draw = partial(_draw, whole, quantities)
    return Exhibit(f"grumem-figure-{number}", whole, shows, PAPER, False, draw, from_training=True)


EXHIBITS: tuple[Exhibit, ...] = (
    _exhibit(
        "8",
        "gates in training",
        "update accuracy with and without evidence, exact exits, validation, against step",
        FIGURE_8,
    ),
    _exhibit(
        "21",
        "format, response length, exit deviation",
        "format correctness, response length, absolute and signed exit deviation, against step",
        FIGURE_21,
    ),
    _exhibit(
        "22",
        "reward and optimization",
        "reward, outcome, turns, entropy, KL and clip fraction, against step",
        FIGURE_22,
    ),
)
