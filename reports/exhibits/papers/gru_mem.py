"""GRU-Mem's exhibits (Sheng et al., 2026-02-12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from matplotlib.figure import Figure

from core.names import base_of
from reports.causes.pictured import memory_tokens
from reports.exhibits.build import (
    Picture,
    as_curves,
    as_heatmap,
    at_lengths,
    both_measures,
    of_grids,
    over_lengths,
)
from reports.exhibits.cases import gate_cases
from reports.exhibits.drawing.bars import bars, exit_bars
from reports.exhibits.drawing.curves import LengthAxis
from reports.exhibits.drawing.memory import memory_figure
from reports.exhibits.drawing.speed import speed_heatmap
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.grid import Column, Grid, Row, filled
from reports.exhibits.models import GATED, GATED_SMALL, looks_of, rows_of
from reports.exhibits.papers.memagent import RULER_LENGTHS, TO_896K
from reports.exhibits.rollouts import endings, exits, rollouts
from reports.exhibits.tables import csv_of
from reports.labels import Series, span
from reports.run.data import RunData
from reports.run.matching import meaning_of

PAPER = "GRU-Mem (Sheng et al., 2026-02-12)"

TASKS: Mapping[str, str] = {
    "ruler_hqa": "HQA",
    "qa_1": "SQuAD",
    "niah_single_1": "SK-1",
    "niah_single_2": "SK-2",
    "niah_single_3": "SK-3",
    "niah_multikey_1": "MK-1",
    "niah_multikey_2": "MK-2",
    "niah_multikey_3": "MK-3",
    "niah_multiquery": "MQ",
    "niah_multivalue": "MV",
}
"""The ten tasks in the paper's order, and what it calls them."""

LENGTHS: Mapping[str, Sequence[str]] = {
    task: {"ruler_hqa": TO_896K, "qa_1": RULER_LENGTHS[:6]}.get(task, RULER_LENGTHS)
    for task in TASKS
}
ASSUMED = (
    "Means over context lengths. The paper says 7K to 896K for all tasks; for RULER's own tasks "
    "8K to 512K is assumed here, and to 256K for SQuAD, whose paragraphs end there."
)
SCALES = (("7B", GATED), ("3B", GATED_SMALL))
EARLY_LENGTHS = ("112K", "224K", "448K", "896K")
OWN = ("niah_multivalue", "niah_multivalue_noise")
"""Tasks that ask for all values: the paper's, and the one that needs no essays."""


def _over(tasks: Sequence[str]) -> tuple[Column, ...]:
    named = {task: TASKS[task] for task in tasks}
    return over_lengths(named, "avg 7K-896K", LENGTHS)


def _table_1() -> list[Grid]:
    grids: list[Grid] = []
    for scale, group in SCALES:
        grid = Grid(
            "", "accuracy", rows_of(group), _over([*TASKS]), ("Table 1",), own_lengths=False
        )
        grids += both_measures(grid, scale)
    return grids


def _early(number: str, task: str, share: str, exits_figure: str) -> list[Exhibit]:
    """A table of unbalanced evidence, and the figure of where the readings ended."""
    title = f"GRU-Mem, Table {number}: evidence in the first {share} of the documents"
    printed = f"Table {number} (evidence in first {share})"
    columns = at_lengths(task, EARLY_LENGTHS)
    grids = both_measures(Grid("", "accuracy", rows_of(GATED), columns, (printed,)))
    shares_title = f"GRU-Mem, Figure {exits_figure}: where reading stops, evidence first {share}"
    return [
        of_grids(
            f"grumem-table-{number}",
            title,
            "accuracy and seconds at 112K to 896K, MemAgent and GRU-Mem (w EG)",
            PAPER,
            grids,
            as_heatmap(title),
        ),
        Exhibit(
            f"grumem-figure-{exits_figure}",
            shares_title,
            "shares of readings that ended before, at and after the last evidence, by length",
            PAPER,
            False,
            partial(_exit_shares, shares_title, task),
        ),
    ]


def _exit_shares(title: str, task: str, material: Material) -> Drawn | None:
    """Of the published task; where the run has none of it, of all its tasks at all depths that
    an exit gate read."""
    if material.run is None:
        return None
    counted = endings(material.run, rollouts(material))
    if not counted:
        return None
    meant = [name for name in counted if _means(name, (task,))]
    if not meant:  # of other tasks, which the paper does not show
        title = f"After {title.partition(', evidence')[0]}"
    tasks = meant or [*counted]
    shares = exits(material.run, [counted[name] for name in tasks])
    counts = span([one.samples for one in shares])
    below = [
        f"{', '.join(sorted(tasks))}: {counts} samples a bar. Exact: the reading ended at the "
        "chunk with the last evidence; late: after it, or the gate never closed."
    ]
    table = csv_of(
        {"series": one.series, "length": one.length, **one.shares, "samples": one.samples}
        for one in shares
    )
    return Drawn({"": exit_bars(title, shares, below)}, texts={".csv": table})


def _means(task: str, published: Sequence[str]) -> bool:
    meaning = meaning_of(task)
    return (meaning.published if meaning else base_of(task)) in published


FIGURE_6 = "GRU-Mem, Figure 6: the memory's size against the turn"


def _memory(material: Material) -> Drawn | None:
    """At the longest length that all agents of the run have of the task."""
    run = material.run
    length = _shared_length(run) if run else None
    if run is None or length is None:
        return None
    sizes: dict[Series, list[list[float]]] = {}
    tasks: set[str] = set()
    for one in rollouts(material):
        asked = one.cell.length == length and _means(one.cell.task, OWN)
        if asked and run.is_agent(one.series) and (grown := memory_tokens(one.turns())):
            sizes.setdefault(one.series, []).append(grown)
            tasks.add(one.cell.task)
    if not sizes:  # of an export there are no turns
        return None
    below = [
        f"{', '.join(sorted(tasks))} at {length:,} tokens. Lines: mean over "
        f"{max(map(len, sizes.values()))} samples; bands: the middle 80%. A memory that is part of "
        "a reply has the reply's tokens by its share of the characters."
    ]
    looks = {look.label: look for series, look in run.looks().items() if series in sizes}
    ordered = {look.label: sizes[s] for s, look in run.looks().items() if s in sizes}
    figure = memory_figure(FIGURE_6, ordered, looks, _limits(run, sizes), below)
    table = csv_of(
        {"series": label, "sample": number, "turn": turn, "memory_tokens": round(tokens, 1)}
        for label, samples in ordered.items()
        for number, sample in enumerate(samples)
        for turn, tokens in enumerate(sample, 1)
    )
    return Drawn({"": figure}, texts={".csv": table})


def _shared_length(run: RunData) -> int | None:
    """The longest at which every agent that has the task has ended a sample of it, else the
    longest of any; None where none has it."""
    lengths: dict[Series, set[int]] = {}
    for cell in run.cells:
        if cell.ok and run.is_agent(cell.series) and _means(cell.task, OWN):
            lengths.setdefault(cell.series, set()).add(cell.length)
    if not lengths:
        return None
    return max(set.intersection(*lengths.values()) or set.union(*lengths.values()))


def _limits(run: RunData, shown: Iterable[Series]) -> set[int]:
    """What the budgets of the agents' replies allow a memory."""
    found = [run.method_settings(series).get("reply_tokens") for series in shown]
    return {int(limit) for limit in found if limit}


def _bars(title: str) -> Picture:
    def picture(material: Material, grids: Sequence[Grid]) -> Mapping[str, Figure | None]:
        rows = {row.name: row for grid in grids for row in grid.rows}
        style = looks_of(list(rows.values()), material.run)
        return {"": bars(title, grids, style, [ASSUMED])}

    return picture


def _by_speed(number: int, task: str) -> Exhibit:
    title = f"GRU-Mem, Figure {number}: {TASKS[task]}, accuracy and speed-up"

    def draw(material: Material) -> Drawn | None:
        pairs: list[tuple[Grid, Grid]] = []
        own: set[Row] = set()
        for scale, group in SCALES:
            base = Grid(scale, "accuracy", rows_of(group), at_lengths(task, LENGTHS[task]))
            accuracy = filled(base, (), material.run)
            seconds = filled(replace(base, measure="seconds"), (), material.run)
            # A model of one's own that is of no scale of the paper is shown once.
            again = {row for row in accuracy.rows if row.series is not None} & own
            own |= {row for row in accuracy.rows if row.series is not None}
            keep = tuple(row for row in accuracy.rows if row not in again)
            shown = {row for row in keep if any(place[0] == row.name for place in accuracy.ours)}
            if shown and all(row.series is not None for row in shown):
                accuracy = replace(accuracy, title="Models of the run")
            pairs.append((_only(accuracy, keep), _only(seconds, keep)))
        figure = speed_heatmap(title, pairs)
        grids = tuple(grid for pair in pairs for grid in pair if grid.ours)
        return Drawn({"": figure}, grids) if figure else None

    return Exhibit(
        f"grumem-figure-{number}",
        title,
        f"{task}: rows are methods, columns lengths, the number is the accuracy, the shading the "
        "speed-up over MemAgent; 7B and 3B",
        PAPER,
        False,
        draw,
    )


def _only(grid: Grid, rows: Sequence[Row]) -> Grid:
    names = {row.name for row in rows}
    kept = {place: ours for place, ours in grid.ours.items() if place[0] in names}
    return replace(grid, rows=tuple(rows), ours=kept)


TABLE_1 = "GRU-Mem, Table 1: ten tasks, accuracy and seconds"
FIGURE_5 = "GRU-Mem, Figure 5: all four values (MV) against length"
FIGURE_9 = "GRU-Mem, Figure 9: with RL and without"
CASES = "GRU-Mem, Figures 24 to 34: turns with and without evidence"

EXHIBITS: tuple[Exhibit, ...] = (
    of_grids(
        "grumem-table-1",
        TABLE_1,
        "accuracy and seconds of MemAgent and GRU-Mem without and with exit gate, 7B and 3B, "
        "means over lengths; with the gate there is no MV",
        PAPER,
        _table_1(),
        as_heatmap(TABLE_1, [ASSUMED]),
    ),
    *_early("2", "ruler_hqa_early20", "20%", "7"),
    of_grids(
        "grumem-figure-5",
        FIGURE_5,
        "MV: accuracy and seconds against length, 7B and 3B",
        PAPER,
        both_measures(
            Grid(
                *("", "accuracy", rows_of(GATED, GATED_SMALL)),
                at_lengths("niah_multivalue", RULER_LENGTHS),
            )
        ),
        as_curves(FIGURE_5, LengthAxis()),
    ),
    Exhibit(
        "grumem-figure-6",
        FIGURE_6,
        "MV at 512K (else the run's longest): memory size in tokens against turn, by method",
        PAPER,
        False,
        _memory,
    ),
    of_grids(
        "grumem-figure-9",
        FIGURE_9,
        "bars by task: GRU-Mem after RL, and its base model in the same workflow",
        PAPER,
        [
            Grid(
                *("", "accuracy", rows_of(GATED)[1:], _over([*TASKS])),
                own_lengths=False,
                own_methods=("gru_mem",),
            )
        ],
        _bars(FIGURE_9),
    ),
    *(_by_speed(number, task) for number, task in enumerate(TASKS, 11)),
    *_early("4", "ruler_hqa_early10", "10%", "23"),
    Exhibit(
        "grumem-case-studies",
        CASES,
        "whole replies of one sample's turns: thought, check, update, next; --task, --length and "
        "--sample choose it",
        PAPER,
        False,
        partial(gate_cases, CASES),
    ),
)
