"""Which tasks of a run are one task at several depths, by their names.

A task's name may go on with settings, `niah_single_1@depth=0.25,form=ruler`; the depth is where
in the context the gold stands, 0 (the beginning) to 1 (the end).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import UsageError
from core.names import Name, parse_name

DEPTH = "depth"

DepthMap = Sequence[tuple[float, str]]
"""A task's depths, ascending, each with the whole name that the cells have."""


def depth_maps(tasks: Sequence[str]) -> Mapping[str, DepthMap]:
    """Base task (the name without the depth) -> its depths, for those with two or more."""
    found: dict[str, list[tuple[float, str]]] = {}
    for task in tasks:
        base, depth = split_depth(task)
        if depth is not None:
            found.setdefault(base, []).append((depth, task))
    several = {base: rows for base, rows in found.items() if len({d for d, _ in rows}) > 1}
    return {base: sorted(rows) for base, rows in several.items()}


def split_depth(task: str) -> tuple[str, float | None]:
    """`vt@hops=2,depth=0.5` -> (`vt@hops=2`, 0.5); None where the name has no depth in it."""
    try:
        name = parse_name(task)
        depth = float(name.settings[DEPTH])
    except (
        UsageError,
        KeyError,
        ValueError,
    ):  # a run may hold tasks that this version does not know
        return task, None
    others = {key: value for key, value in name.settings.items() if key != DEPTH}
    return str(Name(name.base, others)), depth
