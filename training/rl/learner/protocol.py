"""What the algorithm asks of a learner, and the conversations that it hands over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A turn to learn from. One advantage and one old logprob a reply token."""

    prompt: Ids
    reply: Ids
    advantages: tuple[float, ...]
    old_logprobs: tuple[float, ...]


Groups = Sequence[Sequence[Conversation]]
"""Of each question the conversations of all its rollouts."""


class RolloutLearner(Protocol):
    """A policy that learns from judged rollouts."""

    def update(self, groups: Groups, step: int) -> dict[str, float]:
        """Learns from the groups of step `step` (from 0); returns the metrics of the update."""
        ...

    def weights(self) -> Iterable[tuple[str, Tensor]]:
        """The policy's weights by their names in the checkpoint, for the engine."""
        ...

    def load(self, out: Path) -> int:
        """Goes on from the newest state in `out`: returns its step, 0 where there is none."""
        ...

    def save(self, out: Path, step: int) -> None:
        """Adds the state after `step` steps to those in `out`, of which a few stay."""
        ...
