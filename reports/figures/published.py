"""The papers' curves of the run's tasks, as a figure of its own: none of it was measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from reports.figures.curves import PERCENT
from reports.figures.style import (
    Rendered,
    dress,
    foot,
    head,
    length_axis,
    limits_of,
    new_figure,
    render,
)
from reports.labels import Look
from reports.run.published import PublishedRow, lengths_of


def published_figure(rows: Sequence[PublishedRow], style: Mapping[str, Look]) -> Rendered | None:
    """One panel a task and exhibit, one line a model, each with its look of `style` and in that
    order; None if no row has a single length."""
    curves = [row for row in rows if lengths_of(row.length)]
    if not curves:
        return None
    panels = list(dict.fromkeys((row.task, row.exhibit) for row in curves))
    shown = {row.model for row in curves}
    by_name = {model: look for model, look in style.items() if model in shown}
    columns = min(2, len(panels))
    height = 0.9 + 0.2 * -(-len(by_name) // 3) + 2.9 * -(-len(panels) // columns)
    figure = new_figure(height)
    grid = figure.add_gridspec(-(-len(panels) // columns), columns)
    for place, (task, exhibit) in enumerate(panels):
        ax = figure.add_subplot(grid[place // columns, place % columns])
        dress(ax, f"{task} · {exhibit}".replace("+-", "±"))
        _curves(ax, [r for r in curves if (r.task, r.exhibit) == (task, exhibit)], by_name)
    head(figure, "Published results, not measured here", list(by_name.values()))
    sources = "; ".join(dict.fromkeys(row.source for row in curves))
    foot(figure, f"Context length in tokens, log scale; accuracy as printed. Source: {sources}.")
    return render(
        *(figure, "published_curves", "Published curves of the same tasks"),
        "Accuracy against context length as printed in the papers, one line a model.",
    )


def _curves(ax: Axes, rows: Sequence[PublishedRow], style: Mapping[str, Look]) -> None:
    lengths = sorted({_place(row) for row in rows})
    for model, look in style.items():
        points = sorted((_place(row), row.value) for row in rows if row.model == model)
        if not points:  # an empty line makes the layout fail
            continue
        ax.plot(
            *([x for x, _ in points], [y for _, y in points]),
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            markersize=4.2,
            linewidth=1.6,
            clip_on=False,
        )
    length_axis(ax, lengths, limits_of(lengths), room=10)
    ax.tick_params(axis="x", labelsize=7)
    ax.set_ylim(-3, 103)
    ax.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    ax.yaxis.set_major_formatter(PERCENT)


def _place(row: PublishedRow) -> int:
    """Where a label stands on the axis: its binary reading, so that 7K, 14K, ... 3.5M
    are evenly spaced."""
    return lengths_of(row.length)[-1]
