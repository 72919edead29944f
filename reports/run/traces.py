"""One rollout a series, as an excerpt: what the agent read, remembered and said.

The sample is picked by position, never by outcome: the first task of the plan, its middle
length, the lowest index that ended for as many series as possible. All of them show that
same sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.types import Turn
from reports.labels import Series
from tasks.scoring import PROFILES

Key = tuple[str, int, str, str]
"""Task, length, method, model."""

MOST_TRACES = 6
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


def read_traces(
    ended: Mapping[Key, Mapping[int, str]],
    rollout_of: Callable[[Key, int], tuple[Mapping[str, Any], Sequence[Turn]]],
    metrics: Mapping[str, str],
) -> list[Trace]:
    """One trace a series, in the order of the plan, at most MOST_TRACES. `ended`: the ids of the
    samples that have ended, by cell and index. `rollout_of` gives the row and the turns of a
    cell's sample, no turns where the run does not have them: it has no trace then. `metrics`: the
    primary one of each task."""
    found = [rollout_of(key, index) for key, index in _pick(ended).items()]
    return [
        _trace(row, turns, metrics[row["task"]])
        for row, turns in found
        if turns or not row["turns"]
    ]


def _pick(ended: Mapping[Key, Mapping[int, str]]) -> dict[Key, int]:
    """The index of the sample to show, the same one for each series."""
    found: dict[tuple[str, int, int, str], list[Key]] = {}
    for key, ids in ended.items():
        for index, name in ids.items():
            found.setdefault((*key[:2], index, name), []).append(key)
    most = max(map(len, found.values()), default=0)
    full = [sample for sample, keys in found.items() if len(keys) == most]
    if not full:
        return {}
    task = full[0][0]
    lengths = sorted({length for t, length, *_ in full if t == task})
    length = lengths[len(lengths) // 2]
    sample = min((s for s in full if s[:2] == (task, length)), key=lambda s: s[2])
    return dict.fromkeys(found[sample][:MOST_TRACES], sample[2])


def _trace(row: Mapping[str, Any], turns: Sequence[Turn], metric: str) -> Trace:
    scores = {
        profile: row["scores"][profile][metric]
        for profile in PROFILES
        if metric in row["scores"].get(profile, {})
    }
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
