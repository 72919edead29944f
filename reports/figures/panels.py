"""Panels of one figure: a panel a task, and titles that lie over no other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures.style import dress, new_figure

RIM_IN = 1.3
"""What is above and below all panels, in inches."""
MOST_ACROSS = 3
"""How many panels of `task_panels` stand side by side."""
TITLE_CHARS = 108
"""Characters of titles that stand side by side, over all panels of a line."""
TITLE_LINE_IN = 0.16
"""What a further line of a title takes, in inches."""


def task_panels(titles: Sequence[str], panel_in: float) -> tuple[Figure, list[Axes]]:
    """A figure with a dressed panel a title, up to three side by side; a line of panels is
    `panel_in` inches high."""
    across = min(MOST_ACROSS, len(titles))
    down = -(-len(titles) // across)
    parted = [broken(title, TITLE_CHARS // across) for title in titles]
    figure = new_figure(RIM_IN + down * (panel_in + further_lines_in(parted)))
    grid = figure.add_gridspec(down, across)
    axes = []
    for place, title in enumerate(parted):
        ax = figure.add_subplot(grid[place // across, place % across])
        dress(ax, title)
        axes.append(ax)
    return figure, axes


def broken(title: str, most: int) -> str:
    """A title in lines of at most `most` characters where a task's parameters allow it: parted
    before their @ and after their commas."""
    lines = [""]
    for part in re.split("(?=@)|(?<=,)", title):
        if lines[-1] and len(lines[-1] + part) > most:
            lines.append(part)
        else:
            lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def further_lines_in(titles: Sequence[str]) -> float:
    """Inches that a line of panels grows by for titles of several lines."""
    return TITLE_LINE_IN * max(title.count("\n") for title in titles)
