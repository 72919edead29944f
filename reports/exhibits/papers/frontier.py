"""What accuracy costs: against operations, seconds and tokens, all on the same samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.store import Store
from core.arithmetic.shapes import Shape, find_shape
from reports.exhibits.drawing.scatter import frontier_figure
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.rollouts import Rollout, rollouts
from reports.exhibits.tables import csv_of
from reports.flops import sample_flops
from reports.labels import Series, span
from reports.run.data import RunData
from reports.run.exported import open_run
from reports.run.matching import how_timed

ROOT = Path(__file__).resolve().parents[3]
TITLE = "Accuracy against what it costs"
Place = tuple[str, int]
"""A task and a length."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A series at a length, means over the samples that all series ended: the share right
    (strict), and what a sample took. `flops` is NaN where the model's sizes are not known."""

    series: Series
    length: int
    accuracy: float
    flops: float
    seconds: float
    tokens: float
    samples: int


def spent(material: Material, run: RunData) -> list[Spent]:
    """One a series and length, over the tasks whose samples every series has there."""
    shared = shared_samples(run)
    costs = _costs(material, run)
    found = []
    for series in run.all_series:
        for length in run.lengths:
            keys = [
                (series, place, sample)
                for place, samples in shared.items()
                for sample in samples
                if place[1] == length
            ]
            priced = [costs[key] for key in keys if key in costs]
            if priced:
                right = math.fsum(_score(run, *key) for key in keys) / len(keys)
                flops, seconds, tokens = map(_mean, zip(*priced, strict=True))
                found.append(Spent(series, length, right, flops, seconds, tokens, len(keys)))
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def shared_samples(run: RunData) -> dict[Place, list[str]]:
    """The samples of a task and length that every series of the run has ended there."""
    ended: dict[Place, list[set[str]]] = {}
    for cell in run.cells:
        if cell.finished:
            ended.setdefault((cell.task, cell.length), []).append({*cell.by_sample["strict"]})
    every = len(run.all_series)
    whole = {place: sets for place, sets in ended.items() if len(sets) == every}
    return {place: sorted(set.intersection(*sets)) for place, sets in whole.items()}


def _score(run: RunData, series: Series, place: Place, sample: str) -> float:
    cell = run.find(place[0], series, place[1])
    return cell.by_sample["strict"][sample] if cell else 0.0


def _costs(
    material: Material, run: RunData
) -> dict[tuple[Series, Place, str], tuple[float, float, float]]:
    """Operations, seconds and tokens of every sample that ended well, means of its draws."""
    shapes = {
        series.model: find_shape(run.model(series.model).get("source"), ROOT)
        for series in run.all_series
    }
    squares: dict[tuple[Path, int, int, int], int] = {}
    for path in material.runs:
        with open_run(path) as source:
            if isinstance(source, Store):
                squares |= {(path, *key): n for key, n in source.squared_tokens().items()}
    found: dict[tuple[Series, Place, str], list[tuple[float, float, float]]] = {}
    for one in rollouts(material):
        square = squares.get((one.run, one.cell.id, one.row["index"], one.row["draw"]))
        key = one.series, (one.cell.task, one.cell.length), one.row["id"]
        found.setdefault(key, []).append(_priced(one, shapes[one.cell.model], square))
    return {key: _mean_of(drawn) for key, drawn in found.items()}


def _mean_of(drawn: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Of a sample's draws."""
    operations, seconds, tokens = map(fmean, zip(*drawn, strict=True))
    return operations, seconds, tokens


def _priced(one: Rollout, shape: Shape | None, squares: int | None) -> tuple[float, float, float]:
    """An export has no turns: they are taken as equally long."""
    replied = one.row["completion_tokens"]
    tokens = one.row["prompt_tokens"] + replied
    square = tokens**2 / max(one.row["turns"], 1) if squares is None else squares
    flops = sample_flops(shape, tokens, replied, square) if shape else math.nan
    return flops, one.row["seconds"], tokens


def _draw(material: Material) -> Drawn | None:
    run = material.run
    if run is None:
        return None
    found = spent(material, run)
    if not found:
        return None
    style = run.looks()
    tasks = sorted({task for task, _ in shared_samples(run)})
    counts = span([one.samples for one in found])
    below = [
        f"Tasks: {', '.join(tasks)}; {counts} samples a point, the same ones for every "
        "line. Strict scoring.",
        "Operations: forward, counted from each turn's measured tokens, prefix caching not taken "
        f"off. Seconds: requests of a sample added up, {how_timed(run.sessions)}.",
    ]
    figure = frontier_figure(TITLE, {style[s]: _of(found, s) for s in run.all_series}, below)
    return Drawn({"": figure}, texts={".csv": _csv(found)})


def _of(found: Sequence[Spent], series: Series) -> list[Mapping[str, float]]:
    return [
        {
            "length": one.length,
            "accuracy": 100 * one.accuracy,
            "flops": one.flops,
            "seconds": one.seconds,
            "tokens": one.tokens,
        }
        for one in found
        if one.series == series
    ]


def _csv(found: Sequence[Spent]) -> str:
    return csv_of(
        {
            "method": one.series.method,
            "model": one.series.model,
            "length": one.length,
            "samples": one.samples,
            "accuracy": one.accuracy,
            "flops_forward_exact": one.flops,
            "seconds": one.seconds,
            "tokens": one.tokens,
        }
        for one in found
    )


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "frontier",
        TITLE,
        "accuracy against operations, seconds and tokens a sample, agents and full context on "
        "the same samples",
        "not in the papers",
        False,
        _draw,
    ),
)
