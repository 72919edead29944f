"""One sample as boxes of text, turn by turn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from reports.figures.style import GREY, INK, PRINT

WIDTH_IN = PRINT.width_in
LINE_IN, CHARS, MOST_LINES = 0.135, 120, 14
EVIDENCE, PLAIN = "#e4f3ea", "#f3f4f6"


@dataclass(frozen=True, slots=True)
class Box:
    """One turn: what stands over it, and its text. `evidence`: its chunk held some."""

    head: str
    text: str
    evidence: bool = False


def wrapped(text: str, most_lines: int = MOST_LINES) -> list[str]:
    """A text as lines that fit the box; what is left out is counted."""
    lines = [
        part
        for line in text.strip().splitlines() or [""]
        for part in textwrap.wrap(line, CHARS) or [""]
    ]
    if len(lines) <= most_lines:
        return lines
    return [*lines[:most_lines], f"[… {len(lines) - most_lines} lines more]"]


def case_figure(name: str, about: Sequence[str], boxes: Sequence[Box], below: str) -> Figure:
    """The sample's question above, then its turns from top to bottom."""
    intro = [part for line in about for part in textwrap.wrap(line, CHARS)]
    texts = [wrapped(box.text) for box in boxes]
    height = 0.75 + LINE_IN * (len(intro) + sum(len(lines) + 2.6 for lines in texts))
    figure = Figure(figsize=(WIDTH_IN, height), dpi=PRINT.dpi, facecolor="white")
    ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set_axis_off()
    ax.set_xlim(0, WIDTH_IN)
    ax.set_ylim(height, 0)
    plain: dict[str, Any] = {"va": "top", "color": INK, "parse_math": False}
    ax.text(0.1, 0.1, name, fontsize=11, fontweight="bold", **plain)
    ax.text(0.1, 0.36, "\n".join(intro), fontsize=7.5, linespacing=1.3, **plain)
    top = 0.46 + LINE_IN * len(intro)
    for box, lines in zip(boxes, texts, strict=True):
        tall = LINE_IN * (len(lines) + 1.9)
        ax.add_patch(
            FancyBboxPatch(
                *((0.12, top), WIDTH_IN - 0.24, tall),
                boxstyle="round,pad=0,rounding_size=0.05",
                facecolor=EVIDENCE if box.evidence else PLAIN,
                linewidth=0,
            )
        )
        ax.text(0.2, top + 0.05, box.head, fontsize=7.5, fontweight="bold", **plain)
        ax.text(0.2, top + 0.21, "\n".join(lines), fontsize=7, linespacing=1.3, **plain)
        top += tall + 0.7 * LINE_IN
    ax.text(0.1, height - 0.08, below, fontsize=7, color=GREY, va="bottom")
    return figure
