"""The sheet that an exhibit is drawn on, and what all pictures share."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

from reports.exhibits.grid import Grid, View, letter
from reports.figures.style import FAINT, GREY, INK, lay_out, same_dpi

WIDTH_IN = 7.2
"""A page's text width: what is 7 points here is 7 points in print."""

FOOT_CHARS = 134
DPI = 160

HEADINGS: Mapping[View, str] = {
    "published": "Published",
    "ours": "Measured here",
    "difference": "Difference, measured less published",
}


_PRINT: Mapping[str, Callable[[Figure, io.BytesIO], None]] = {
    "png": lambda figure, to: FigureCanvasAgg(figure).print_png(to, metadata={"Software": None}),
    "pdf": lambda figure, to: FigureCanvasPdf(figure).print_pdf(
        to, metadata={"CreationDate": None, "Producer": None}
    ),
    "svg": lambda figure, to: FigureCanvasSVG(figure).print_svg(
        to, metadata={"Date": None, "Creator": None}
    ),
}
"""No time stamps. `savefig` would draw each form twice."""


def new_sheet(height_in: float) -> Figure:
    """An empty white figure of text width."""
    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained", facecolor="white")


def rendered(figure: Figure, forms: Sequence[str]) -> dict[str, bytes]:
    """The picture in each form (png, pdf, svg) as a file's content, without time stamps or
    random names: same numbers, same bytes."""
    lay_out(figure)
    found = {}
    with mpl.rc_context({"svg.hashsalt": "longmem-bench", "svg.fonttype": "none"}):
        for form in forms:
            content = io.BytesIO()
            with same_dpi(figure):
                figure.dpi = DPI
                _PRINT[form](figure, content)
            found[form] = content.getvalue()
    if "png" in found:
        found["png"] = _few_colours(found["png"])
    return found


def _few_colours(png: bytes) -> bytes:
    """The same picture with a palette: a third of the bytes, so that a gallery stays small."""
    smaller = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        palette = picture.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
        )
        palette.save(smaller, format="png", optimize=True)
    return smaller.getvalue()


def title(figure: Figure, text: str, legend: Sequence[Artist] = (), columns: int = 4) -> None:
    """The bold line over the whole sheet, at the left, and below it a legend."""
    if not legend:
        figure.suptitle(text, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
        return
    # One artist for both: the layout engine gives a title and a legend the same place.
    figure.legend(
        handles=list(legend), loc="outside upper left", ncols=columns, fontsize=7.5,
        frameon=False, labelcolor=INK, handlelength=2.6, columnspacing=1.4, borderaxespad=0.0,
        title=text, alignment="left", title_fontproperties=FontProperties(size=11, weight="bold"),
    ).get_title().set_color(INK)  # fmt: skip


def legend_in(rows: int) -> float:
    """The height of a legend."""
    return 0.17 * rows


def print_in(lines: Sequence[str]) -> float:
    """The height of the small print."""
    return 0.135 * sum(len(textwrap.wrap(line, FOOT_CHARS)) for line in lines) + 0.1


def small_print(figure: Figure, lines: Sequence[str]) -> None:
    """The lines under the whole sheet, at the left, broken where they are long."""
    if not lines:
        return
    broken = [part for line in lines for part in textwrap.wrap(line, FOOT_CHARS)]
    figure.supxlabel("\n".join(broken), x=0.01, ha="left", fontsize=7, color=GREY, linespacing=1.35)


def dress(axes: Axes, heading: str) -> None:
    """Plain axes: a heading at the left, horizontal grid lines, no box."""
    axes.set_title(heading, loc="left", fontsize=9, color=INK, pad=5)
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=7.5, colors=GREY, length=3, width=0.7)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#aab2bb")
    axes.xaxis.label.set(fontsize=8, color=GREY)
    axes.yaxis.label.set(fontsize=8, color=GREY)


def heading(grid: Grid, view: View) -> str:
    """What stands over a panel: the part of the exhibit, and whose numbers it shows."""
    name = HEADINGS[view] if grid.measure != "flops" else "From the published formula"
    if view == "difference":
        name += " (points)" if grid.measure == "accuracy" else " (seconds)"
    return f"{grid.title} · {name}" if grid.title else name


def unit_of(grid: Grid, view: View) -> str:
    """What an axis of a view's numbers says."""
    if view != "difference":
        return grid.unit
    return "difference in " + ("points" if grid.measure == "accuracy" else "seconds")


def notes(grids: Sequence[Grid]) -> list[str]:
    """Small print that the numbers need: what ours differ in, and how seconds were measured."""
    said = []
    for grid in grids:
        marked = [f"{letter(place)} {text}" for place, text in enumerate(grid.notes)]
        if marked:
            said.append(f"{_whose(grid, grids)}: {'; '.join(marked)}.")
        if grid.smallest:
            said.append(grid.smallest)
        if grid.timed and grid.ours:
            said.append(f"Seconds of ours: requests of a sample added up, {grid.timed}.")
    return list(dict.fromkeys(said))


def _whose(grid: Grid, grids: Sequence[Grid]) -> str:
    named = len(grids) > 1 and grid.title
    return f"Letters ({grid.title})" if named else "Letters"
