"""The common look of all figures, on matplotlib's object API (no pyplot, no global state)."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from PIL import Image

from reports.labels import Look, length_label

INK = "#1b1f24"
GREY = "#5c6670"
FAINT = "#dfe3e8"


@dataclass(frozen=True, slots=True)
class Sheet:
    """What figures are drawn on: its width and resolution, sizes of letters in points, and how
    many characters of small print a line holds."""

    width_in: float
    dpi: int
    title_pt: float
    heading_pt: float
    legend_pt: float
    tick_pt: float
    foot_pt: float
    foot_chars: int


README = Sheet(9.0, 200, 12.5, 9.5, 8, 8, 7.5, 150)
"""1,800 pixels: twice the width of a README column."""
PRINT = Sheet(7.2, 160, 11, 9, 7.5, 7.5, 7, 134)
"""A page's text width: what is 7 points here is 7 points in print."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A figure as files' contents. `alt` says in words what it shows."""

    name: str
    title: str
    alt: str
    png: bytes
    pdf: bytes


_PRINTERS: Mapping[str, Callable[[Figure, io.BytesIO], None]] = {
    "png": lambda figure, to: FigureCanvasAgg(figure).print_png(to, metadata={"Software": None}),
    "pdf": lambda figure, to: FigureCanvasPdf(figure).print_pdf(
        to, metadata={"CreationDate": None, "Producer": None}
    ),
    "svg": lambda figure, to: FigureCanvasSVG(figure).print_svg(
        to, metadata={"Date": None, "Creator": None}
    ),
}


def new_figure(height_in: float, sheet: Sheet = README) -> Figure:
    """An empty white figure of the sheet's width."""
    size = sheet.width_in, height_in
    return Figure(figsize=size, dpi=sheet.dpi, layout="constrained", facecolor="white")


def render(figure: Figure, name: str, title: str, alt: str) -> Rendered:
    """The figure as PNG and PDF."""
    found = printed(figure, ("png", "pdf"))
    return Rendered(name, title, alt, found["png"], found["pdf"])


def printed(figure: Figure, forms: Sequence[str]) -> dict[str, bytes]:
    """The figure in each form (png, pdf, svg) as a file's content, without time stamps or random
    names: same numbers, same bytes. It is laid out once and drawn once a form; `savefig` would
    do both twice for each."""
    _lay_out(figure)
    found = {}
    with mpl.rc_context({"svg.hashsalt": "longmem-bench", "svg.fonttype": "none"}):
        for form in forms:
            content = io.BytesIO()
            with _same_dpi(figure):
                _PRINTERS[form](figure, content)
            found[form] = content.getvalue()
    return found


def few_colours(png: bytes) -> bytes:
    """The same picture with a palette: a third of the bytes, so that a gallery stays small."""
    smaller = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        palette = picture.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
        )
        palette.save(smaller, format="png", optimize=True)
    return smaller.getvalue()


def _lay_out(figure: Figure) -> None:
    """Gives all parts of a figure their places, for good."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")


@contextmanager
def _same_dpi(figure: Figure) -> Iterator[None]:
    """Gives a figure its resolution back, which files of vectors change."""
    dpi = figure.dpi
    try:
        yield
    finally:
        figure.dpi = dpi


def head(figure: Figure, title: str, styles: Sequence[Look] = (), sheet: Sheet = README) -> None:
    """The bold title over the whole figure, at the left, and below it a legend of `styles`."""
    head_of(figure, title, list(map(key_of, styles)), 3, sheet)


def head_of(
    figure: Figure, title: str, handles: Sequence[Artist], columns: int, sheet: Sheet = README
) -> None:
    """The title, and below it a legend of these, so many side by side."""
    size = sheet.title_pt
    if not handles:
        figure.suptitle(title, x=0.008, ha="left", fontsize=size, fontweight="bold", color=INK)
        return
    # One artist for both: the layout engine gives a title and a legend the same place.
    figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=columns,
        fontsize=sheet.legend_pt,
        frameon=False,
        labelcolor=INK,
        handlelength=2.6,
        columnspacing=1.4,
        borderaxespad=0.0,
        title=title,
        alignment="left",
        title_fontproperties=FontProperties(size=size, weight="bold"),
    ).get_title().set_color(INK)


def key_of(look: Look) -> Line2D:
    """What stands for a line in a legend."""
    return Line2D(
        *([], []),
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
        markersize=4.5,
        linewidth=1.4,
        label=look.label,
    )


def foot(figure: Figure, text: str, sheet: Sheet = README) -> None:
    """The small print under the whole figure, at the left; long lines are broken."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, sheet.foot_chars)]
    figure.supxlabel(
        "\n".join(lines), x=0.008, ha="left", fontsize=sheet.foot_pt, color=GREY, linespacing=1.4
    )


TITLE_PAD_PT = 6.0
"""Between a panel's title and its axes, in points."""


def dress(
    axes: Axes,
    title: str,
    bold: bool = False,
    sheet: Sheet = README,
    *,
    pad: float = TITLE_PAD_PT,
) -> None:
    """Plain axes: a title at the left, `pad` points above, horizontal grid lines, no box."""
    weight = "bold" if bold else "normal"
    size = sheet.heading_pt
    axes.set_title(title, loc="left", fontsize=size, color=INK, pad=pad, fontweight=weight)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=sheet.tick_pt, colors=GREY, length=3, width=0.8)
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
