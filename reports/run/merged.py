"""The settings of several runs, and what they cost, shown as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from core.errors import UsageError
from serving.limits.budget import Spent

GROUPS = ("models", "methods", "tasks", "data", "outside", "accepted")
"""Settings by name. One name must mean one thing in all runs of a report."""


def merged_settings(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings by the runs' names -> those of all: groups joined, a model's methods joined,
    cells one after another, and of all else each different value once.

    Raises:
        UsageError: two runs hold a model, a task or a file of one name that differ.
    """
    result: dict[str, Any] = {}
    for run, settings in runs.items():
        for key, value in settings.items():
            if key in GROUPS:
                result[key] = _joined(result.get(key, {}), value, f"{key}.", run)
            elif key == "cells":
                result[key] = [*result.get(key, []), *value]
            else:
                result.setdefault(key, []).append(value)
    for key, values in result.items():
        if key not in (*GROUPS, "cells"):
            distinct = [v for place, v in enumerate(values) if v not in values[:place]]
            result[key] = distinct[0] if len(distinct) == 1 else distinct
    return result


def merged_spent(runs: Iterable[Spent | None]) -> Spent | None:
    """What several runs have cost together; with a budget where each of them has one."""
    known = [spent for spent in runs if spent is not None]
    limits = [spent.budget_usd for spent in known if spent.budget_usd is not None]
    together = math.fsum(limits) if len(limits) == len(known) else None
    return Spent(math.fsum(spent.usd for spent in known), together) if known else None


def _joined(
    first: Mapping[str, Any], second: Mapping[str, Any], where: str, run: str
) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        if name in first and where == "models.":
            ours, theirs = first[name].get("methods", {}), value.get("methods", {})
            methods = _joined(ours, theirs, f"{where}{name}.methods.", run)
            value = {**value, "methods": methods}
            first_too = {**first[name], "methods": methods}
        else:
            first_too = first.get(name, value)
        if first_too != value:
            raise UsageError(
                f"run {run}: its settings of {where}{name} are not those of the runs before it. "
                "One report shows one thing under one name: report them apart."
            )
        result[name] = value
    return result
