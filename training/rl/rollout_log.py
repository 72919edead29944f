"""A few rollouts of every step in full, for whoever asks why the reward moves.

One JSON line a rollout: its question, golds, rewards, and every turn's reply. Bounded: as many
rollouts a step as the recipe says, and of every text MOST_CHARACTERS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.types import Json
from training.rl.judge import Group

ROLLOUTS_FILE = "rollouts.jsonl"
MOST_CHARACTERS = 2_000


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
