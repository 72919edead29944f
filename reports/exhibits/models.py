"""The papers' models: their groups, their order from top to bottom, and one look for each.

A hue is a family, lightness and marker are the scale: told apart without colour vision, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.exhibits.grid import Row
from reports.labels import Look, Series
from reports.run.data import RunData


@dataclass(frozen=True, slots=True)
class Group:
    """Models that a paper shows together, on a block of one colour."""

    name: str
    colour: str
    models: tuple[str, ...]


RL = Group("RL-MemAgent", "#dcd3f0", ("RL-MemAgent-14B", "RL-MemAgent-7B"))
WITHOUT_RL = Group(
    "MemAgent w/o RL",
    "#fdf3cf",
    ("MemAgent-32B w/o RL", "MemAgent-14B w/o RL", "MemAgent-7B w/o RL"),
)
LONG_CONTEXT = Group(
    "Long context model",
    "#cfe5f7",
    ("QwenLong-L1-32B", "Qwen2.5-Instruct-14B-1M", "Qwen2.5-Instruct-7B-1M"),
)
REASONING = Group(
    "Reasoning model",
    "#f9d3dc",
    ("DS-Distill-Qwen-32B", "DS-Distill-Qwen-14B", "DS-Distill-Qwen-7B"),
)
BACKBONE = Group(
    "Backbone",
    "#d5edcf",
    ("Qwen2.5-Instruct-32B", "Qwen2.5-Instruct-14B", "Qwen2.5-Instruct-7B"),
)
GATED = Group(
    "GRU-Mem's 7B",
    "#cfe5f7",
    ("MemAgent-7B", "GRU-Mem-7B (w/o EG)", "GRU-Mem-7B (w EG)"),
)
GATED_SMALL = Group(
    "GRU-Mem's 3B",
    "#fdf3cf",
    ("MemAgent-3B", "GRU-Mem-3B (w/o EG)", "GRU-Mem-3B (w EG)"),
)
GROUPS = (RL, WITHOUT_RL, LONG_CONTEXT, REASONING, BACKBONE, GATED, GATED_SMALL)
OWN_COLOUR = "#e6e9ed"
"""The block behind models that no paper has."""

_PURPLES, _REDS = ("#4b1d91", "#9d68d6"), ("#7f1d1d", "#d7301f", "#f58b4c")
_GREENS, _BROWNS = ("#00441b", "#2e9e5b", "#86cf91"), ("#4f3013", "#a3662a", "#dba96b")
_BLUES, _GATES = ("#08306b", "#2b7bba", "#7fb8dd"), ("#0072b2", "#e69f00", "#009e73")
_MARKS = {"32B": "s", "14B": "o", "7B": "^", "3B": "D"}
_DASHES = {RL.name: "-", WITHOUT_RL.name: "--", LONG_CONTEXT.name: "-", REASONING.name: "-."}


def _looks() -> dict[str, Look]:
    colours = (_PURPLES, _REDS, _GREENS, _BROWNS, _BLUES, _GATES, _GATES)
    found = {}
    for group, hues in zip(GROUPS, colours, strict=True):
        for model, colour in zip(group.models, hues, strict=True):
            mark = next(mark for size, mark in _MARKS.items() if size in model)
            found[model] = Look(model, colour, mark, _DASHES.get(group.name, ":"))
    for small in (*GATED.models, *GATED_SMALL.models):
        dash = "-" if small in GATED.models else "--"
        found[small] = Look(small, found[small].colour, found[small].marker, dash)
    return found


LOOKS: Mapping[str, Look] = _looks()
"""A published model -> how it is drawn in every exhibit."""


def rows_of(*groups: Group) -> tuple[Row, ...]:
    """The models of some groups as rows, in the order of the papers."""
    return tuple(Row(model, model) for group in groups for model in group.models)


def group_of(row: Row) -> Group:
    """The group of a row; of a model of ours, its method."""
    for group in GROUPS:
        if row.name in group.models:
            return group
    return Group(f"ours: {row.method or row.name}", OWN_COLOUR, (row.name,))


def looks_of(rows: Sequence[Row], run: RunData | None) -> dict[str, Look]:
    """How each row is drawn: a published model as everywhere, one of ours as in its report."""
    style: Mapping[Series, Look] = run.looks() if run else {}
    return {row.name: LOOKS[row.name] if row.series is None else style[row.series] for row in rows}
