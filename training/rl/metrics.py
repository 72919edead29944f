"""What a step's rollouts looked like: rewards by component, by task and by turn, and a few rollouts
of every step in full, for whoever asks why the reward moves (one JSON line each; bounded: so many a
step as the recipe says, and of every text MOST_CHARACTERS)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from core.types import Json
from training.rl.judge import Group

Metrics = dict[str, float]

ROLLOUTS_FILE = "rollouts.jsonl"
MOST_CHARACTERS = 2_000

MOST_TURNS = 8
"""Turns that have a curve of their own; rewards of later ones are in the mean alone."""


def rollout_metrics(groups: Sequence[Group]) -> Metrics:
    """What a step's rollouts looked like, dropped groups included: rewards, lengths (tokens),
    failures; for GRU-Mem also the curves of the paper's Figures 8, 21 and 22."""
    ends = [end for group in groups for end in group.trajectories]
    turns = [turn for end in ends for turn in end.turns]
    memories = [turn for turn in turns if turn.tag == "memory"]
    metrics: Metrics = {
        "reward": fmean(reward for group in groups for reward in group.rewards),
        "outcome": fmean(outcome for group in groups for outcome in group.outcomes),
        "reply_tokens": _mean(turn.completion_tokens for turn in turns),
        "memory_tokens": _mean(turn.completion_tokens for turn in memories),
        "cut_replies": _mean(turn.finish_reason == "length" for turn in turns),
        "turns": len(turns) / len(ends),
        "failures": _mean(end.failure is not None for end in ends),
        "rollout_tokens": tokens_of(groups),
    }
    metrics |= _rewards(groups)
    records = [record for group in groups for record in group.gates]
    if records:
        kinds = [record.exit_kind for record in records if record.exit_kind is not None]
        deviations = [r.exit_deviation for r in records if r.exit_deviation is not None]
        present = sum(record.present_turns for record in records)
        free = sum(record.free_turns for record in records)
        metrics |= {
            "update_accuracy_present": _share(sum(r.present_right for r in records), present),
            "update_accuracy_free": _share(sum(r.free_right for r in records), free),
            "exit_deviation": _mean(iter(deviations)),
            "exit_deviation_absolute": _mean(map(abs, deviations)),
            "format": _mean(record.in_format for record in records),
        }
        for kind in ("early", "exact", "late"):
            metrics[f"exit_{kind}"] = _share(kinds.count(kind), len(kinds))
    return metrics


def turn_metrics(groups: Sequence[Group], name: str) -> Metrics:
    """The same of single turns as episodes, under a name of their own: their rewards and parts, the
    share of replies without any error, how many groups there are, and how many of them tell their
    replies apart."""
    if not groups:
        return {f"{name}/groups": 0.0}
    parts: dict[str, list[float]] = {}
    for group in groups:
        parts.setdefault(f"{name}/reward", []).extend(group.rewards)
        parts.setdefault(f"{name}/right", []).extend(group.outcomes)
        parts.setdefault(f"{name}/right/{group.sample.task}", []).extend(group.outcomes)
        for part, values in group.parts.items():
            parts.setdefault(f"{name}/reward/{part}", []).extend(values)
    metrics = {name: fmean(values) for name, values in sorted(parts.items())}
    apart = sum(group.informative for group in groups)
    return metrics | {f"{name}/groups": float(len(groups)), f"{name}/apart": apart / len(groups)}


def tokens_of(groups: Sequence[Group]) -> int:
    """All prompts' and replies' tokens."""
    turns = [turn for group in groups for end in group.trajectories for turn in end.turns]
    return sum(turn.prompt_tokens + turn.completion_tokens for turn in turns)


def _rewards(groups: Sequence[Group]) -> Metrics:
    """The rewards' parts (`reward/exit`), each whole and outcome by task, and GRU-Mem's update
    rewards by turn (`update/turn_0`)."""
    parts: dict[str, list[float]] = {}
    for group in groups:
        for part, values in group.parts.items():
            parts.setdefault(f"reward/{part}", []).extend(values)
        task = group.sample.task
        parts.setdefault(f"reward/task/{task}", []).extend(group.rewards)
        parts.setdefault(f"outcome/{task}", []).extend(group.outcomes)
        for rollout in group.updates:
            parts.setdefault("reward/update", []).extend(rollout)
            for turn, value in enumerate(rollout[:MOST_TURNS]):
                parts.setdefault(f"update/turn_{turn}", []).append(value)
    return {name: fmean(values) for name, values in sorted(parts.items()) if values}


def _mean(values: Iterable[float] | Iterable[int]) -> float:
    found = [float(value) for value in values]
    return fmean(found) if found else math.nan


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def logged(groups: Sequence[Group], step: int, count: int) -> Iterator[dict[str, Json]]:
    """The lines of `count` rollouts of step `step`: of different groups, as far as there are. They
    go through the rollouts of a group from step to step, so that no place is always left out."""
    for number in range(count if groups else 0):
        group = groups[number % len(groups)]
        place = (step + number // len(groups)) % len(group.trajectories)
        end = group.trajectories[place]
        turns: list[Json] = [
            {"tag": turn.tag, "reply": turn.reply[:MOST_CHARACTERS], "end": turn.finish_reason}
            for turn in end.turns
        ]
        yield {
            "step": step,
            "task": group.sample.task,
            "sample": group.sample.id,
            "question": group.sample.problem.question[:MOST_CHARACTERS],
            "golds": [gold[:MOST_CHARACTERS] for gold in group.sample.golds],
            "reward": group.rewards[place],
            **{f"reward/{part}": values[place] for part, values in group.parts.items()},
            "update": list(group.updates[place]) if group.updates else [],
            "failure": end.failure.kind if end.failure else None,
            "turns": turns,
        }
