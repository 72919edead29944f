"""The pages of curves: one of all runs, and for GRU-Mem a second one after the paper's Figures 8,
21 and 22 (arXiv:2602.10560).

Where the stages of the recipe beside a metrics.jsonl begin, a thin line stands in every panel, if
all runs have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from core.errors import UsageError
from core.files import write_whole
from reports.figures.style import (
    GREY,
    README,
    Sheet,
    few_colours,
    foot,
    head,
    new_figure,
    printed,
    spread,
)
from reports.figures.training.metrics import Run, Stage, read_metrics
from reports.figures.training.panels import (
    KEY_ROW_PT,
    Panel,
    by_task,
    dash,
    exit_shares,
    one_quantity,
    run_colour,
    several_quantities,
)
from reports.labels import Look

OVERVIEW_FILE, GATES_FILE = "curves.png", "gates.png"
STAGES = 1.5
"""Where lines of stages lie: below curves (2), above areas (1)."""
STAGE_ROOM = 0.1
"""Of the first panel's height, above its curves: for the labels of the stages."""
STAGE_GAP = 0.15
"""Of the steps: between the middles of two labels, at least."""


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
    figures = {OVERVIEW_FILE: _overview(runs)}
    if any(run.tasks("exit_") for run in runs):
        figures[GATES_FILE] = _gates([run for run in runs if run.tasks("exit_")])
    return [
        write_whole(out / name, few_colours(printed(figure, ("png",))["png"]))
        for name, figure in figures.items()
    ]


def _overview(runs: Sequence[Run]) -> Figure:
    one, several = partial(one_quantity, runs), partial(several_quantities, runs)
    of_task = partial(by_task, runs)
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
            partial(exit_shares, runs),
            one_quantity(runs, "exit deviation (chunks after the last evidence)", "exit_deviation"),
            one_quantity(runs, "rollouts in format", "format", floor=0.0, top=1.0),
        ],
        columns=2,
        note="After Figures 8, 21 and 22 of arXiv:2602.10560. A rollout that never says it has "
        "enough counts as a late exit.",
    )


def page_of(
    runs: Sequence[Run],
    title: str,
    panels: Sequence[Panel],
    columns: int,
    note: str,
    sheet: Sheet = README,
) -> Figure:
    """The panels side by side, `columns` of them, with a legend of the runs if there are several,
    and what their lines are in small print below `note`."""
    rows = -(-len(panels) // columns)
    last = max(row["step"] or 0 for run in runs for row in run.rows)
    stages = [stage for stage in _common_stages(runs) if stage.start < last]
    height = 0.9 + (1.9 if columns > 2 else 2.4) * rows
    figure = new_figure(height, sheet)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid[-1]:
        axes.set_xlabel("step", fontsize=7.5, color=GREY)
    keys: list[int] = []
    for axes, panel in zip(grid.flat, panels, strict=True):
        keys.append(panel(axes))
        if not (axes.collections or any(len(line.get_xdata()) for line in axes.lines)):
            _nothing_recorded(axes)
        _mark_stages(axes, stages)
        axes.tick_params(labelsize=7)
        axes.set_xlim(-0.02 * last, 1.02 * last)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    highest = [max(keys[first : first + columns]) for first in range(0, len(keys), columns)]
    figure.set_figheight(height + sum(highest) * KEY_ROW_PT / 72)
    looks = [Look(run.name, run_colour(i), "", dash(i)) for i, run in enumerate(runs)]
    whole = title if len(runs) > 1 else f"{title} · {runs[0].name}"
    head(figure, whole, looks[1:] and looks, sheet)
    if stages:
        _label_stages(figure.axes[0], stages, last)
    foot(figure, "\n".join([note, *_explained(runs, stages)]), sheet)
    return figure


def _explained(runs: Sequence[Run], stages: Sequence[Stage]) -> list[str]:
    """What faint and dashed lines are, where there are any."""
    said = []
    windows = sorted({run.window for run in runs} - {1})
    if windows:
        said.append(
            f"Faint: each step. Strong: the running mean of {' or '.join(map(str, windows))} "
            "steps; what is known at few steps is drawn as it is."
        )
    if stages:
        said.append("Dashed: from there on rollouts are drawn at temperature T.")
    return said


def _nothing_recorded(axes: Axes) -> None:
    """Says so, where ticks would only look like a scale."""
    axes.set_yticks([])
    axes.text(
        *(0.5, 0.5, "not recorded by this run"), transform=axes.transAxes,
        ha="center", va="center", fontsize=8, color=GREY,
    )  # fmt: skip


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
