"""The papers' curves of the run's tasks, as a figure of its own: none of it was measured here."""

from __future__ import annotations

from collections.abc import Sequence

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
from reports.labels import Look, Methods, Series, looks
from reports.run.published import PublishedRow, lengths_of, method_of


def published_figure(rows: Sequence[PublishedRow], methods: Methods) -> Rendered | None:
    """One panel a task and exhibit, one line a model, in the colours of the method that it was
    measured with; None if no row has a single length."""
    curves = [row for row in rows if lengths_of(row.length)]
    if not curves:
        return None
    panels = list(dict.fromkeys((row.task, row.exhibit) for row in curves))
    style = looks(list(dict.fromkeys(_series(row) for row in curves)), methods)
    by_name = {series.model: look for series, look in style.items()}
    columns = min(2, len(panels))
    height = 0.9 + 0.2 * -(-len(by_name) // 3) + 2.9 * -(-len(panels) // columns)
    figure = new_figure(height)
    grid = figure.add_gridspec(-(-len(panels) // columns), columns)
    for place, (task, exhibit) in enumerate(panels):
        ax = figure.add_subplot(grid[place // columns, place % columns])
        dress(ax, f"{task} · {exhibit}".replace("+-", "±"))
        _curves(ax, [r for r in curves if (r.task, r.exhibit) == (task, exhibit)], by_name)
    named = [Look(name, look.colour, look.marker, look.dash) for name, look in by_name.items()]
    head(figure, "Published results, not measured here", named)
    sources = "; ".join(dict.fromkeys(row.source for row in curves))
    foot(figure, f"Context length in tokens, log scale; accuracy as printed. Source: {sources}.")
    return render(
        *(figure, "published_curves", "Published curves of the same tasks"),
        "Accuracy against context length as printed in the papers, one line a model.",
    )


def _series(row: PublishedRow) -> Series:
    return Series(method_of(row.model), row.model)


def _curves(ax: Axes, rows: Sequence[PublishedRow], style: dict[str, Look]) -> None:
    lengths = sorted({_place(row) for row in rows})
    for model in dict.fromkeys(row.model for row in rows):
        points = sorted((_place(row), row.value) for row in rows if row.model == model)
        look = style[model]
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
