"""MemAgent's Figure 7: floating point operations against length, from the published formula."""

from __future__ import annotations

from dataclasses import replace

from core.arithmetic.shapes import SHAPES, Shape
from reports.exhibits.build import at_lengths
from reports.exhibits.drawing.curves import LengthAxis, curves
from reports.exhibits.exhibit import Drawn, Exhibit, Material
from reports.exhibits.grid import Grid, Row
from reports.exhibits.papers.memagent import PAPER
from reports.flops import full_context_flops, memagent_flops
from reports.labels import Look

LABELS = ("8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M", "4M")
TITLE = "MemAgent, Figure 7: floating point operations against length"
BELOW = (
    "Count `published`: forward and backward of verl's estimate for Qwen2, which counts the "
    "look-up of the embedding as a product; a forward pass is a third. Question and reply 1,024 "
    "tokens each, chunks of 5,000. Baseline: the whole context at once."
)
SIZES = {"7B": ("Qwen/Qwen2.5-7B", "-"), "14B": ("Qwen/Qwen2.5-14B-Instruct", "--")}


def _draw(material: Material) -> Drawn | None:
    if material.only_ours:
        return None
    columns = tuple(
        replace(column, tokens=8192 << place) for place, column in enumerate(at_lengths("", LABELS))
    )
    rows: list[Row] = []
    style: dict[str, Look] = {}
    numbers: dict[tuple[str, str], float] = {}
    for size, (source, dash) in SIZES.items():
        shape: Shape = SHAPES[source]
        counts = (
            (f"Baseline, {size} (quadratic)", full_context_flops, "#d55e00", "s"),
            (f"Memory agent, {size} (linear)", memagent_flops, "#0072b2", "o"),
        )
        for name, count, colour, mark in counts:
            rows.append(Row(name, name))
            style[name] = Look(name, colour, mark, dash)
            for column in columns:
                numbers[name, column.label] = count(shape, column.tokens or 0)
    grid = Grid("", "flops", tuple(rows), columns, published=numbers)
    figure = curves(TITLE, [grid], style, LengthAxis(), [BELOW])
    return Drawn({"": figure} if figure else {}, (grid,))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "memagent-figure-7",
        TITLE,
        "operations of a model that reads all at once and of the memory agent, 8K to 4M",
        PAPER,
        True,
        _draw,
    ),
)
