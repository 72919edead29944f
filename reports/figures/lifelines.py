"""The lifelines of all facts of a cell as one picture: a row a fact, a column a turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from reports.causes.lifeline import Lifeline
from reports.causes.survey import Survey
from reports.figures.curves import whose
from reports.figures.style import GREY, Rendered, dress, foot, head_of, new_figure, render
from reports.labels import length_label
from reports.run.data import RunData

STATES = (
    ("the reading had ended", "#ffffff"),
    ("not read yet", "#eef1f4"),
    ("read, not in the memory", "#b9c2cb"),
    ("in the memory", "#0072b2"),
    ("in it with an error", "#f0c642"),
    ("lost again", "#d55e00"),
    ("in the answer", "#1b1f24"),
)
ENDED, UNREAD, ABSENT, HELD, BLURRED, LOST, ANSWERED = range(len(STATES))
"""Rows of STATES: what a square shows."""

MOST_ACROSS = 3
ROW_IN, LEAST_IN, MOST_IN = 0.016, 1.5, 3.2
"""Height of a fact, and of a panel."""
LEAST_COLUMNS = 240
"""Columns of squares in a panel."""


def lifelines_figure(run: RunData, survey: Survey) -> Rendered | None:
    """Lifelines of all samples of each pictured cell, sorted by when the fact was read; None
    where there are none."""
    cells = [one for one in survey.pictured if one.lines]
    if not cells:
        return None
    tasks = list(dict.fromkeys(one.cell.task for one in cells))
    rows = [
        of_task[start : start + MOST_ACROSS]
        for of_task in ([one for one in cells if one.cell.task == task] for task in tasks)
        for start in range(0, len(of_task), MOST_ACROSS)
    ]
    heights = [min(max(max(len(c.lines) for c in row) * ROW_IN, LEAST_IN), MOST_IN) for row in rows]
    across = max(map(len, rows))
    figure = new_figure(1.3 + sum(heights) + 0.55 * len(rows))
    grid = figure.add_gridspec(len(rows), across, height_ratios=heights)
    style = run.looks()
    for down, row in enumerate(rows):
        for column, one in enumerate(row):
            ax = figure.add_subplot(grid[down, column])
            where = f"{one.cell.task} at {length_label(one.cell.length)}"
            dress(ax, f"{where}\n{style[one.series].label}")
            _picture(ax, one.lines)
            if column == 0:
                ax.set_ylabel("facts", fontsize=8, color=GREY)
    keys = [
        Patch(facecolor=colour, edgecolor=GREY, linewidth=0.4, label=name)
        for name, colour in STATES[1:]
    ]
    head_of(figure, "Lifelines of facts" + whose(run), keys, 6)
    foot(
        figure,
        "A row is a fact of one sample, sorted by the turn that read it (those never read lowest); "
        "a column is a turn. The strip at the right is black where the answer holds it. White: the "
        "reading had ended.",
    )
    return render(
        figure,
        "lifelines",
        "Lifelines of the facts of a cell",
        "For each fact, turn by turn, whether it was read, in the memory, blurred or lost, sorted "
        "by the turn that read it.",
    )


def _picture(ax: Axes, lines: Sequence[tuple[Lifeline, int]]) -> None:
    turns = max(last for _, last in lines) + 1
    wide = -(-LEAST_COLUMNS // turns)  # columns of a turn, so that the strip can be narrow
    strip = wide * turns // 30
    squares = np.full((len(lines), wide * turns + 2 * strip), ENDED, dtype=np.uint8)
    ordered = sorted(lines, key=lambda one: _order(*one))
    for row, (line, last) in enumerate(ordered):
        squares[row, : wide * (last + 1)] = np.repeat(_course(line, last), wide)
        squares[row, wide * turns + strip :] = ANSWERED if line.in_answer else UNREAD
    end = 0.5 + squares.shape[1] / wide
    ax.imshow(
        squares,
        ListedColormap([colour for _, colour in STATES]),
        vmin=0,
        vmax=len(STATES) - 1,
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, end, len(lines), 0),
    )
    ax.grid(visible=False)
    ax.set_yticks([])
    numbers = [int(n) for n in MaxNLocator(nbins=6, integer=True).tick_values(1, turns)]
    ticks = [n for n in numbers if 1 <= n <= 0.93 * turns]
    answer = end - strip / wide / 2
    ax.set_xticks([*ticks, answer], [*map(str, ticks), "answer"])
    ax.set_xlabel("turn", fontsize=8, color=GREY)
    ax.spines["bottom"].set_visible(False)


def _course(line: Lifeline, last: int) -> NDArray[np.uint8]:
    """The state of a fact after each turn up to the last one with a memory."""
    states = np.full(last + 1, UNREAD, dtype=np.uint8)
    for turn, state in (
        (line.read_turn, ABSENT),
        (line.stored_turn, HELD),
        (line.lost_turn, LOST),
        (line.blurred_turn, BLURRED),
    ):
        if turn is not None:
            states[turn:] = state
    return states


def _order(line: Lifeline, last: int) -> tuple[float, float, float]:
    """By the turns of reading, storing and loss; what never came to it last."""
    never = float(last + 1)
    found = (line.read_turn, line.stored_turn, line.lost_turn)
    read, stored, lost = (never if turn is None else float(turn) for turn in found)
    return read, -(lost - stored if stored < never else -1.0), stored
