"""What the curves are drawn from: metrics.jsonl of an RL run, and the recipe beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from core.errors import UsageError

METRICS_FILE = "metrics.jsonl"
RECIPE_FILE = "recipe.json"
"""Beside it: what the run was trained by."""
SMOOTHED_STEPS = 20
"""A running mean spans about a twentieth of a run's steps; runs below 40 are drawn as they are."""

Row = Mapping[str, float | None]
Points = tuple[NDArray[np.float64], NDArray[np.float64]]


class Stage(BaseModel):
    """What the figures need of a recipe's stage: from step `start` (from 0) on, rollouts are
    drawn at this temperature."""

    start: int
    temperature: float


class _Staged(BaseModel):
    """What the figures need of a recipe; so that runs of older versions, too, can be drawn."""

    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """The lines of one metrics.jsonl, in the order of their steps, and the stages of the recipe."""

    name: str
    rows: Sequence[Row]
    stages: Sequence[Stage] = ()

    @property
    def window(self) -> int:
        """Steps of the running mean, an odd number; 1 is none."""
        return self._last_step // SMOOTHED_STEPS // 2 * 2 + 1

    @property
    def _last_step(self) -> int:
        return int(self.rows[-1]["step"] or 0)

    def window_of(self, points: Points) -> int:
        """The running mean of these points: none of what is known at few steps only, as
        validation is."""
        return self.window if 2 * len(points[0]) > self._last_step else 1

    def points(self, name: str, per: str | None = None) -> Points:
        """(steps, values) of a metric, or of its ratio to another, where it is known."""
        found = [
            (row["step"], value / below)
            for row in self.rows
            if (value := row.get(name)) is not None and (below := row.get(per) if per else 1.0)
        ]
        array = np.array(found, dtype=np.float64).reshape(-1, 2)
        return array[:, 0], array[:, 1]

    def tasks(self, prefix: str) -> set[str]:
        """What follows `prefix` in the metrics' names."""
        names = {name for row in self.rows for name in row if name.startswith(prefix)}
        return {name.removeprefix(prefix) for name in names}


def read_metrics(path: Path) -> Run:
    """The run of a metrics.jsonl, called as its folder. A last line that a kill cut short, or that
    is being written, is left out.

    Raises:
        UsageError: the file is missing, holds no step, or a line of it is no JSON object; or the
            recipe beside it is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a run"
        ) from error
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise UsageError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict) or "step" not in row:
            raise UsageError(f"{path}, line {number}: no metrics of a step: {line:.60}")
        rows.append({name: _known(value) for name, value in row.items()})
    if not any(row["step"] for row in rows):
        raise UsageError(f"{path}: no step yet, nothing to draw")
    return Run(path.parent.resolve().name, rows, _read_stages(path.with_name(RECIPE_FILE)))


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _read_stages(path: Path) -> Sequence[Stage]:
    """The stages of a recipe; none where there is no file."""
    if not path.is_file():
        return ()
    try:
        return _Staged.model_validate_json(path.read_bytes()).stages
    except ValidationError as error:
        raise UsageError(
            f"{path}: not the recipe of an RL run; expected JSON, its stages with start, "
            "temperature and top_p"
        ) from error
