"""One rollout a method, as an excerpt: what the agent read, remembered and said.

The sample is picked by position, never by outcome: the first task of the plan, its middle
length, the lowest index that ended for as many methods as possible. All methods show that
same sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.store import Cell, Store
from core.types import Turn
from reports.labels import PROFILES, Series

Rows = Mapping[tuple[str, int, str, str], Sequence[Mapping[str, Any]]]

FIRST_TURNS, LAST_TURNS, FOUND_TURNS = 2, 3, 4


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn of the excerpt. `skipped` turns were left out just before it; `same` says that
    the reply repeats the one before it, word for word."""

    number: int
    tag: str
    reply: str
    cut: bool
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    skipped: int
    same: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """The excerpt of one rollout. `scores` holds each profile's primary score."""

    task: str
    length: int
    series: Series
    index: int
    question: str
    golds: tuple[str, ...]
    prediction: str | None
    error: str | None
    scores: Mapping[str, float]
    truncated_tokens: int
    total_turns: int
    turns: tuple[ShownTurn, ...]


def read_traces(store: Store, cells: Sequence[Cell], rows: Rows) -> list[Trace]:
    """One trace a method, in the order of the plan."""
    ids = {(c.task, c.length, c.method, c.model): c.id for c in cells}
    traces = []
    for row in _pick(cells, rows):
        cell = ids[row["task"], row["length"], row["method"], row["model"]]
        turns = [turn for _, turn in store.turns_of(cell, row["index"])]
        traces.append(_trace(row, turns))
    return traces


def _pick(cells: Sequence[Cell], rows: Rows) -> list[Mapping[str, Any]]:
    """The rows of the sample to show, one a method."""
    by_key: dict[tuple[str, int, int], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:  # in plan order, so that a method's first model is the one shown
        for row in rows.get((cell.task, cell.length, cell.method, cell.model), ()):
            key = cell.task, cell.length, int(row["index"])
            by_key.setdefault(key, {}).setdefault(cell.method, row)
    if not by_key:
        return []
    most = max(len(found) for found in by_key.values())
    full = [key for key, found in by_key.items() if len(found) == most]
    task = full[0][0]
    lengths = sorted({length for t, length, _ in full if t == task})
    length = lengths[len(lengths) // 2]
    index = min(i for t, n, i in full if (t, n) == (task, length))
    return list(by_key[task, length, index].values())


def _trace(row: Mapping[str, Any], turns: Sequence[Turn]) -> Trace:
    scores = {}
    for profile in PROFILES:
        found = row["scores"].get(profile, {})
        if found:
            scores[profile] = found.get("sub_em", next(iter(found.values())))
    return Trace(
        task=row["task"],
        length=row["length"],
        series=Series(row["method"], row["model"]),
        index=row["index"],
        question=row["question"],
        golds=tuple(str(gold) for gold in row["golds"]),
        prediction=row["prediction"],
        error=f"{row['error_kind']}: {row['error']}" if row["status"] != "ok" else None,
        scores=scores,
        truncated_tokens=row["truncated_tokens"],
        total_turns=len(turns),
        turns=tuple(_excerpt(turns, row["golds"])),
    )


def _excerpt(turns: Sequence[Turn], golds: Sequence[str]) -> list[ShownTurn]:
    """The first turns, the last, and those whose reply holds more golds than any before."""
    last = range(max(0, len(turns) - LAST_TURNS), len(turns))
    keep = {*range(min(FIRST_TURNS, len(turns))), *last}
    best = found = 0
    for number, turn in enumerate(turns):
        held = sum(gold.lower() in turn.reply.lower() for gold in golds)
        if held > best and found < FOUND_TURNS:
            keep.add(number)
            found += 1
        best = max(best, held)
    shown, previous = [], -1
    for number in sorted(keep):
        turn = turns[number]
        shown.append(
            ShownTurn(
                *(number + 1, turn.tag, turn.reply, turn.finish_reason == "length"),
                *(turn.prompt_tokens, turn.completion_tokens, turn.seconds),
                skipped=number - previous - 1,
                same=number > 0 and turns[number - 1].reply == turn.reply,
            )
        )
        previous = number
    return shown
