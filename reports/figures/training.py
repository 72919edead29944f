"""The curves of RL runs, from their metrics.jsonl: one page of panels, and for GRU-Mem a second
one after the paper's Figures 8, 21 and 22 (arXiv:2602.10560).

Several runs (seeds, say) are laid over one another, each with dashes of its own. Where a panel
shows several quantities the colour is the quantity's, else the run's. Where the stages of the
recipe beside a metrics.jsonl begin, a thin line stands in every panel, if all runs have the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from core.errors import UsageError
from reports.figures.style import DPI, GREY, INK, dress, foot, head, new_figure, spread
from reports.labels import DASHES, PALETTE, Look, compact

RECIPE_FILE = "recipe.json"
"""Beside a run's metrics.jsonl: what it was trained by."""
OVERVIEW_FILE, GATES_FILE = "curves.png", "gates.png"
RUN_COLOURS = (INK, "#AA4499", "#997700", GREY)
EXITS = {"early": PALETTE[1], "exact": PALETTE[2], "late": PALETTE[0]}
SMOOTHED_STEPS = 20
"""A running mean spans about a twentieth of a run's steps; runs below 40 are drawn as they are."""

STAGES, LEGENDS = 1.5, 1.6
"""Where they lie, bottom up: areas (1), stages, legends, curves (2)."""
STAGE_ROOM = 0.1
"""Of the first panel's height, above its curves: for the labels of the stages."""
STAGE_GAP = 0.15
"""Of the steps: between the middles of two labels, at least."""

Row = Mapping[str, float | None]
Points = tuple[NDArray[np.float64], NDArray[np.float64]]


class Stage(BaseModel):
    """What the figures need of a recipe's stage: from step `start` (from 0) on, rollouts are
    drawn at this temperature."""

    start: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Run:
    """The lines of one metrics.jsonl, in the order of their steps, and the stages of the recipe."""

    name: str
    rows: Sequence[Row]
    stages: Sequence[Stage] = ()

    @property
    def window(self) -> int:
        """Steps of the running mean, an odd number; 1 is none."""
        return int(self.rows[-1]["step"] or 0) // SMOOTHED_STEPS // 2 * 2 + 1

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


def draw_metrics(metrics: Sequence[Path], out: Path) -> list[Path]:
    """Write the figures of one or more metrics.jsonl into `out`; returns their paths.

    A run is called as its folder. The second figure is drawn where a run has gates.

    Raises:
        UsageError: a file is missing, holds no step, or a line of it is no JSON object; or the
            recipe beside it is none.
    """
    if not metrics:
        raise UsageError("no run to draw; give a folder with a metrics.jsonl")
    runs = [read_metrics(path) for path in metrics]
    out.mkdir(parents=True, exist_ok=True)
    figures = {OVERVIEW_FILE: _overview(runs)}
    if any(run.tasks("exit_") for run in runs):
        figures[GATES_FILE] = _gates([run for run in runs if run.tasks("exit_")])
    for name, figure in figures.items():
        figure.savefig(out / name, dpi=DPI, metadata={"Software": None})
    return [out / name for name in figures]


# -- the two pages -------------------------------------------------------------------------

Panel = Callable[[Axes], None]


def _overview(runs: Sequence[Run]) -> Figure:
    one, several = partial(one_quantity, runs), partial(several_quantities, runs)
    of_task = partial(_by_task, runs)
    return page_of(
        runs,
        "RL training",
        [
            one("reward a rollout", "reward"),
            of_task("validation accuracy, strict", "validation/strict"),
            of_task("validation accuracy, lenient", "validation/lenient"),
            of_task("outcome of the rollouts", "outcome"),
            several(
                "tokens a reply",
                {"memory turns": ("memory_tokens",), "all turns": ("reply_tokens",)},
            ),
            several(
                "share of replies cut, of rollouts failed",
                {"cut": ("cut_replies",), "failed": ("failures",)},
                floor=0.0,
            ),
            one("entropy (nats a token)", "entropy", floor=0.0),
            one("KL to the reference (k3, nats a token)", "kl", floor=0.0),
            one("clip fraction", "clip_fraction", floor=0.0),
            one("drift of engine and trainer (|log ratio|)", "drift", floor=0.0),
            one("gradient norm", "gradient_norm", floor=0.0),
            several(
                "tokens a second",
                {
                    "rollouts": ("rollout_tokens", "rollout_seconds"),
                    "update": ("update_tokens", "update_seconds"),
                },
                floor=0.0,
            ),
            several(
                "share of tokens",
                {"shared, not computed again": ("shared",), "padding": ("padding",)},
                floor=0.0,
            ),
            one("turns a rollout", "turns", floor=0.0),
            several(
                "groups a step",
                {"learned from": ("groups",), "dropped": ("dropped_groups",)},
                floor=0.0,
            ),
        ],
        columns=3,
        note="Tokens a second count every turn in full, also what equal prompts share.",
    )


def _gates(runs: Sequence[Run]) -> Figure:
    several = partial(several_quantities, runs)
    return page_of(
        runs,
        "GRU-Mem's gates in training",
        [
            several(
                "update accuracy of memory turns",
                {
                    "chunks with evidence": ("update_accuracy_present",),
                    "chunks without": ("update_accuracy_free",),
                },
                floor=0.0,
                top=1.0,
            ),
            partial(_exits, runs),
            one_quantity(runs, "exit deviation (chunks after the last evidence)", "exit_deviation"),
            one_quantity(runs, "rollouts in format", "format", floor=0.0, top=1.0),
        ],
        columns=2,
        note="After Figures 8, 21 and 22 of arXiv:2602.10560. A rollout that never says it has "
        "enough counts as a late exit.",
    )


def page_of(
    runs: Sequence[Run], title: str, panels: Sequence[Panel], columns: int, note: str
) -> Figure:
    rows = -(-len(panels) // columns)
    last = max(row["step"] or 0 for run in runs for row in run.rows)
    stages = [stage for stage in _common_stages(runs) if stage.start < last]
    figure = new_figure(0.9 + (1.9 if columns > 2 else 2.4) * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid[-1]:
        axes.set_xlabel("step", fontsize=7.5, color=GREY)
    for axes, panel in zip(grid.flat, panels, strict=True):
        panel(axes)
        if not (axes.collections or any(len(line.get_xdata()) for line in axes.lines)):
            _nothing_recorded(axes)
        _mark_stages(axes, stages)
        axes.tick_params(labelsize=7)
        axes.set_xlim(-0.02 * last, 1.02 * last)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    looks = [Look(run.name, _run_colour(i), "", _dash(i)) for i, run in enumerate(runs)]
    head(figure, title if len(runs) > 1 else f"{title}: {runs[0].name}", looks[1:] and looks)
    windows = sorted({run.window for run in runs} - {1})
    if windows:
        over = " or ".join(map(str, windows))
        note += f"\nFaint: each step. Strong: the running mean of {over} steps."
    if stages:
        _label_stages(figure.axes[0], stages, last)
        note += "\nDashed: from there on rollouts are drawn at temperature T."
    foot(figure, note)
    return figure


def _nothing_recorded(axes: Axes) -> None:
    """Says so, where ticks would only look like a scale."""
    axes.set_yticks([])
    axes.text(
        *(0.5, 0.5, "not recorded by this run"), transform=axes.transAxes,
        ha="center", va="center", fontsize=8, color=GREY,
    )  # fmt: skip


# -- panels --------------------------------------------------------------------------------


def one_quantity(
    runs: Sequence[Run],
    title: str,
    name: str,
    *,
    floor: float | None = None,
    top: float | None = None,
) -> Panel:
    """A panel of one quantity."""

    def draw(axes: Axes) -> None:
        dress(axes, title)
        for place, run in enumerate(runs):
            _line(axes, run.points(name), run.window, _run_colour(place), _dash(place))
        _limit(axes, floor, top)

    return draw


def several_quantities(
    runs: Sequence[Run],
    title: str,
    quantities: Mapping[str, tuple[str, ...]],
    *,
    floor: float | None = None,
    top: float | None = None,
    smooth: bool = True,
) -> Panel:
    """A panel of several quantities: label -> (metric,) or (metric, what it is divided by). Their
    colours go by their places; one that no run has is left out."""

    def draw(axes: Axes) -> None:
        dress(axes, title)
        for number, (label, metric) in enumerate(quantities.items()):
            colour, named = PALETTE[number % len(PALETTE)], label
            for place, run in enumerate(runs):
                points = run.points(*metric)
                if len(points[0]):
                    _line(axes, points, run.window if smooth else 1, colour, _dash(place), named)
                    named = ""
        if axes.lines:
            axes.legend(
                fontsize=6.5, labelcolor=GREY, handlelength=1.4, borderaxespad=0.2,
                facecolor="white", edgecolor="none", framealpha=1.0,
            ).set_zorder(LEGENDS)  # fmt: skip
        _limit(axes, floor, top)

    return draw


def _by_task(runs: Sequence[Run], title: str, metric: str) -> Panel:
    prefixes = ("outcome/", "validation/strict/")
    # All tasks of the page, so that one has the same colour in every panel.
    tasks = sorted({task for run in runs for prefix in prefixes for task in run.tasks(prefix)})
    quantities = {task: (f"{metric}/{task}",) for task in tasks}
    # Few points, far apart: nothing to smooth.
    smooth = not metric.startswith("validation/")
    return several_quantities(runs, title, quantities, floor=0.0, top=1.0, smooth=smooth)


def _exits(runs: Sequence[Run], axes: Axes) -> None:
    """Shares of exits before, at and after the last evidence; the mean over runs."""
    dress(axes, "exits before, at and after the last evidence")
    rows: dict[float, list[list[float]]] = {}
    for run in runs:
        columns = [_smoothed(run.points(f"exit_{kind}"), run.window) for kind in EXITS]
        for values in zip(columns[0][0], *(shares for _, shares in columns), strict=True):
            rows.setdefault(values[0], []).append(list(values[1:]))
    steps = sorted(rows)
    shares = np.array([np.mean(rows[step], axis=0) for step in steps]).T
    axes.stackplot(steps, shares, labels=list(EXITS), colors=list(EXITS.values()), alpha=0.85)
    # Below the axis: the areas fill the panel.
    axes.legend(fontsize=6.5, frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.08))
    _limit(axes, 0.0, 1.0)


def _line(axes: Axes, points: Points, window: int, colour: str, dash: str, label: str = "") -> None:
    steps, values = points
    if window > 1:
        axes.plot(steps, values, color=colour, linewidth=0.6, alpha=0.3)
    steps, values = _smoothed(points, window)
    marker = "o" if len(steps) < SMOOTHED_STEPS else ""
    axes.plot(
        *(steps, values), color=colour, linestyle=dash, linewidth=1.3,
        marker=marker, markersize=2.2, label=label or None,
    )  # fmt: skip


def _smoothed(points: Points, window: int) -> Points:
    """A running mean centred on each point, of fewer points at the ends."""
    steps, values = points
    sums = np.concatenate(([0.0], values.cumsum()))
    places = np.arange(len(values))
    low = np.maximum(places - window // 2, 0)
    high = np.minimum(places + window // 2 + 1, len(values))
    return steps, (sums[high] - sums[low]) / (high - low)


def _common_stages(runs: Sequence[Run]) -> Sequence[Stage]:
    """The stages of all runs, none if they differ."""
    first, *others = (run.stages for run in runs)
    return first if all(stages == first for stages in others) else ()


def _mark_stages(axes: Axes, stages: Sequence[Stage]) -> None:
    """A line where each stage begins."""
    for place in map(_place, stages):
        axes.axvline(
            place, color=GREY, alpha=0.6, linestyle=(0, (4, 3)), linewidth=0.7, zorder=STAGES
        )


def _label_stages(axes: Axes, stages: Sequence[Stage], last: float) -> None:
    """Labels above the curves, apart from one another, over the axes' 0 to `last` steps."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + STAGE_ROOM * (high - low))
    gap = STAGE_GAP * last
    places = spread([*map(_place, stages)], gap, gap / 2, last - gap / 2)
    for place, stage in zip(places, stages, strict=True):
        axes.text(
            *(place, 1.0, f"T={stage.temperature:g}"), transform=axes.get_xaxis_transform(),
            ha="center", va="top", fontsize=6.5, color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _place(stage: Stage) -> float:
    """Between the last step before it and its first one: metrics count steps from 1, a stage's
    start counts from 0."""
    return stage.start + 0.5


def _limit(axes: Axes, floor: float | None, top: float | None) -> None:
    low, high = axes.get_ylim()
    room = 0.03 if top is not None else 0.0
    axes.set_ylim(low if floor is None else floor - room, high if top is None else top + room)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1e3 else compact(value))


def _run_colour(place: int) -> str:
    return RUN_COLOURS[place % len(RUN_COLOURS)]


def _dash(place: int) -> str:
    return DASHES[place % len(DASHES)]


def read_metrics(path: Path) -> Run:
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
                break  # a line that a run is writing, or that a kill cut short
            raise UsageError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict) or "step" not in row:
            raise UsageError(f"{path}, line {number}: no metrics of a step: {line:.60}")
        rows.append({name: _known(value) for name, value in row.items()})
    if not any(row["step"] for row in rows):
        raise UsageError(f"{path}: no step yet, nothing to draw")
    return Run(path.parent.resolve().name, rows, _read_stages(path.with_name(RECIPE_FILE)))


class _Staged(BaseModel):
    """What the figures need of a recipe; so that runs of older versions, too, can be drawn."""

    stages: tuple[Stage, ...] = ()


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


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
