"""MemAgent's exhibits (arXiv:2507.02259 and its ICLR 2026 version)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reports.exhibits.build import as_curves, as_heatmap, at_lengths, of_grids
from reports.exhibits.cases import memory_case
from reports.exhibits.drawing.curves import LengthAxis, Mark
from reports.exhibits.exhibit import Exhibit
from reports.exhibits.grid import Column, Grid
from reports.exhibits.models import (
    BACKBONE,
    LONG_CONTEXT,
    REASONING,
    RL,
    WITHOUT_RL,
    rows_of,
)

PAPER = "MemAgent, arXiv:2507.02259"
ICLR = "MemAgent, ICLR 2026 (OpenReview k5nIOvYGCL)"

TABLE_2 = ("7K", "14K", "28K", "56K", "112K", "224K", "448K", "896K", "1.75M", "3.5M")
TO_896K = TABLE_2[:8]
RULER_LENGTHS = ("8K", "16K", "32K", "64K", "128K", "256K", "512K")
MAIN_ROWS = rows_of(LONG_CONTEXT, REASONING, RL)
RL_FIRST = rows_of(RL, LONG_CONTEXT, REASONING)
ALL_ROWS = rows_of(RL, WITHOUT_RL, LONG_CONTEXT, REASONING, BACKBONE)
"""All 14 models, top to bottom as in the heatmaps."""

SYNTHETIC = (
    *("niah_single_1", "niah_single_2", "niah_single_3"),
    *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    *("niah_multivalue", "niah_multiquery", "vt", "fwe"),
)
"""The ten tasks of Figure 6a's mean."""

FIGURE_1 = LengthAxis(
    linear=True,
    ticks=("7K", "112K", "224K", "448K", "896K", "1.75M", "3.5M"),
    mark=Mark(128_000, "Truncation"),
)
FIGURE_5 = LengthAxis(
    linear=True,
    ticks=("7K", "112K", "224K", "448K", "896K"),
    mark=Mark(130_000, "Truncation w/o notepad"),
)
READ_OFF = "Figure 5 (read off the plot, +-1)"


def _heatmap(number: str, what: str, tasks: Sequence[str], printed: Sequence[str] = ()) -> Exhibit:
    """A figure of one heatmap a task, 14 models by 8K to 512K."""
    grids = [
        Grid(task, "accuracy", ALL_ROWS, at_lengths(task, RULER_LENGTHS), tuple(printed))
        for task in tasks
    ]
    title = f"MemAgent, Figure {number}: {what}"
    return of_grids(
        f"memagent-figure-{number}",
        title,
        f"accuracy of 14 models by length, one heatmap a task: {', '.join(tasks)}",
        PAPER,
        grids,
        as_heatmap(title),
    )


def _columns(labels: Sequence[str]) -> tuple[Column, ...]:
    return at_lengths("ruler_hqa", labels)


FIGURE_1_TITLE = "MemAgent, Figure 1: RULER-HotpotQA against context length"
TABLE_2_TITLE = "MemAgent, Table 2: RULER-HotpotQA, 7K to 3.5M tokens"
FIGURE_5_TITLE = "MemAgent, Figure 5: what RL and the memory do"
FIGURE_6A_TITLE = "MemAgent, Figure 6a: mean of RULER's ten synthetic tasks"
CASE = "MemAgent, case study: one sample's memory, round by round"
FIGURE_6B_TITLE = "MemAgent, Figure 6b: SQuAD (RULER's qa_1)"

EXHIBITS: tuple[Exhibit, ...] = (
    of_grids(
        "memagent-figure-1",
        FIGURE_1_TITLE,
        "score of eight models against length on a linear axis, 7K to 3.5M, with the place "
        "where windows of 128K truncate",
        PAPER,
        [Grid("", "accuracy", RL_FIRST, _columns(TABLE_2), ("Table 2",))],
        as_curves(FIGURE_1_TITLE, FIGURE_1),
    ),
    of_grids(
        "memagent-table-2",
        TABLE_2_TITLE,
        "accuracy of eight models, 7K to 896K, agents to 3.5M; below it the rows of the ICLR "
        "version; every number a multiple of 1/128",
        f"{PAPER}; {ICLR}",
        [
            Grid("arXiv version", "accuracy", MAIN_ROWS, _columns(TABLE_2), ("Table 2",)),
            Grid(
                *("ICLR version", "accuracy", MAIN_ROWS),
                _columns(("7K", "112K", "448K", "896K", "1.75M", "3.5M")),
                ("Main results",),
                own_lengths=False,
            ),
        ],
        as_heatmap(TABLE_2_TITLE),
    ),
    of_grids(
        "memagent-figure-5",
        FIGURE_5_TITLE,
        "ablation to 896K: agents with RL, without RL, and their backbones with full context",
        PAPER,
        [
            Grid(
                *("", "accuracy", rows_of(RL, WITHOUT_RL, BACKBONE), _columns(TO_896K)),
                ("Table 2", READ_OFF),
            )
        ],
        as_curves(
            FIGURE_5_TITLE,
            FIGURE_5,
            ["Published: RL-MemAgent as in Table 2, all others read off the plot (±1)."],
        ),
    ),
    of_grids(
        "memagent-figure-6a",
        FIGURE_6A_TITLE,
        "heatmap of 14 models, 8K to 512K, mean of ten tasks",
        PAPER,
        [
            Grid(
                *("", "accuracy", ALL_ROWS),
                at_lengths("ruler_synthetic_avg10", RULER_LENGTHS, SYNTHETIC),
                ("Figure 6a",),
            )
        ],
        as_heatmap(FIGURE_6A_TITLE),
    ),
    of_grids(
        "memagent-figure-6b",
        FIGURE_6B_TITLE,
        "the same for SQuAD, 8K to 256K",
        PAPER,
        [Grid("", "accuracy", ALL_ROWS, at_lengths("qa_1", RULER_LENGTHS[:6]))],
        as_heatmap(FIGURE_6B_TITLE),
    ),
    _heatmap("8", "one needle", SYNTHETIC[:3]),
    _heatmap("9", "one key among several", SYNTHETIC[3:6]),
    _heatmap("10", "several needles", ("niah_multiquery", "niah_multivalue")),
    _heatmap("11", "frequent words, variable tracking", ("fwe", "vt"), ("Figure 11 (FWE)",)),
    Exhibit(
        "memagent-case-study",
        CASE,
        "what the memory holds after each round of one sample that matters; --task, --length and "
        "--sample choose it",
        PAPER,
        False,
        partial(memory_case, CASE),
    ),
)
