"""The common look of all figures, on matplotlib's object API (no pyplot, no global state)."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from reports.labels import Look, length_label

INK = "#1b1f24"
GREY = "#5c6670"
FAINT = "#dfe3e8"
WIDTH_IN = 9.0
FOOT_CHARS = 150
DPI = 200
"""9 inches at 200 dots: 1,800 pixels, twice the width of a README column."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A figure as files' contents. `alt` says in words what it shows."""

    name: str
    title: str
    alt: str
    png: bytes
    pdf: bytes


def new_figure(height_in: float) -> Figure:
    """An empty white figure of README width."""
    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained", facecolor="white")


def render(figure: Figure, name: str, title: str, alt: str) -> Rendered:
    """The figure as PNG and PDF, without time stamps: same numbers, same bytes. It is laid out
    once and drawn twice; `savefig` would do both again for each file."""
    lay_out(figure)
    png, pdf = io.BytesIO(), io.BytesIO()
    with same_dpi(figure):
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None, "Producer": None})
    return Rendered(name, title, alt, png.getvalue(), pdf.getvalue())


def lay_out(figure: Figure) -> None:
    """Gives all parts of a figure their places, for good."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")


@contextmanager
def same_dpi(figure: Figure) -> Iterator[None]:
    """Gives a figure its resolution back, which files of vectors change."""
    dpi = figure.dpi
    try:
        yield
    finally:
        figure.dpi = dpi


def head(figure: Figure, title: str, styles: Sequence[Look] = ()) -> None:
    """The bold title over the whole figure, at the left, and below it a legend of `styles`."""
    handles = [
        Line2D(
            *([], []),
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            markersize=5,
            label=look.label,
        )
        for look in styles
    ]
    head_of(figure, title, handles, 3)


def head_of(figure: Figure, title: str, handles: Sequence[Artist], columns: int) -> None:
    """The title, and below it a legend of these, so many side by side."""
    if not handles:
        figure.suptitle(title, x=0.008, ha="left", fontsize=12.5, fontweight="bold", color=INK)
        return
    # One artist for both: the layout engine gives a title and a legend the same place.
    figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=columns,
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        handlelength=2.6,
        columnspacing=1.6,
        borderaxespad=0.0,
        title=title,
        alignment="left",
        title_fontproperties=FontProperties(size=12.5, weight="bold"),
    ).get_title().set_color(INK)


def foot(figure: Figure, text: str) -> None:
    """The small print under the whole figure, at the left; long lines are broken."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, FOOT_CHARS)]
    figure.supxlabel(
        "\n".join(lines), x=0.008, ha="left", fontsize=7.5, color=GREY, linespacing=1.4
    )


def dress(axes: Axes, title: str, bold: bool = False) -> None:
    """Plain axes: a title at the left, horizontal grid lines, no box."""
    weight = "bold" if bold else "normal"
    axes.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6, fontweight=weight)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=8, colors=GREY, length=3, width=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#aab2bb")
    axes.tick_params(axis="y", length=0)


def length_axis(axes: Axes, lengths: Sequence[int], limits: tuple[float, float], room: int) -> None:
    """A log2 axis with a tick at every length; at most `room` of them are labelled, the
    longest always."""
    axes.set_xscale("log", base=2)
    step = -(-len(lengths) // room)
    labels = [
        length_label(length) if (len(lengths) - 1 - place) % step == 0 else ""
        for place, length in enumerate(lengths)
    ]
    axes.xaxis.set_major_locator(FixedLocator(list(lengths)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(lengths), labels)
    axes.set_xlim(*limits)


def limits_of(lengths: Sequence[int]) -> tuple[float, float]:
    """The x range of a figure: a third of an octave beyond the shortest and the longest."""
    return min(lengths) / 1.26, max(lengths) * 1.26


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Moves label places (any order) apart until neighbours are `gap` away, inside
    [low, high] as far as that is possible."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    result = list(places)
    floor = low
    for i in order:
        result[i] = max(result[i], floor)
        floor = result[i] + gap
    ceiling = high
    for i in reversed(order):
        result[i] = min(result[i], ceiling)
        ceiling = result[i] - gap
    return result
