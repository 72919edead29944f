"""A rollout engine over the ranks of a sharded learner: each rank's engine answers a share of every
batch, and all ranks get all replies.

    requests -> shares -> each engine's generate -> gathered, in order -> every rank

New weights come sharded. They are gathered one by one as the engines take them, so that no rank
holds more than two of them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from core.errors import RequestFailed
from core.tokens import Tokenizer
from core.types import Sampling, Trajectory
from training.rl.engines.engine import (
    FreeEngine,
    Generated,
    Job,
    Play,
    Request,
    RolloutEngine,
)

T = TypeVar("T")

COLLECTIVE_TIMEOUT_S = 6 * 3600
"""Ranks wait for each other for so long: longer than any reply is waited for (half an hour,
serving/client.py) and than a whole step's rollouts, which they await where one rank asks a pool."""


@dataclass(frozen=True, slots=True)
class Crew:
    """This rank among those that roll out together. `engines`: how many answer. `ranks_each`: so
    many ranks that follow each other hold the parts of one engine (tensor parallel)."""

    rank: int
    ranks: int
    engines: int
    ranks_each: int = 1


class SharedEngine:
    """A `RolloutEngine`. `engine`: this rank's own, or its part of one; None on a rank without.
    Ranks that share an engine ask their parts the same at once. `dtype`: of matrices on their way
    to the engines. All ranks must ask the same."""

    def __init__(
        self,
        engine: RolloutEngine | None,
        crew: Crew,
        *,
        tokenizer: Tokenizer,
        window_tokens: int,
        dtype: torch.dtype,
    ) -> None:
        self.engine, self.crew = engine, crew
        self.tokenizer, self.window_tokens = tokenizer, window_tokens
        self.dtype = dtype
        # Replies are Python objects: over CPUs also where the default group is NCCL's.
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S))

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Generated | RequestFailed]:
        """See RolloutEngine.

        Raises:
            RuntimeError: the ranks ask different things.
        """
        replies: Sequence[Generated | RequestFailed] = []
        if self.engine is not None:
            place, part = divmod(self.crew.rank, self.crew.ranks_each)
            mine = shares(requests, self.crew.engines)[place]
            replies = self.engine.generate(mine, sampling) if mine else []
            if part:  # the first of those that share an engine tells what it answered
                replies = []
        return self._of_all_ranks(hash(tuple(requests)), replies)

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        """See FreeEngine: each rank with an engine plays a share of the jobs by itself, those of a
        question together, and all get all trajectories at the end.

        Raises:
            RuntimeError: the ranks play different jobs, or share an engine.
        """
        crew = self.crew
        if crew.ranks_each > 1:
            raise RuntimeError("ranks that share an engine must ask it in lockstep")
        ends: list[Trajectory] = []
        if self.engine is not None:
            free: FreeEngine = self.engine  # type: ignore[assignment]
            start, end = (len(jobs) * (crew.rank + n) // crew.engines for n in (0, 1))
            mine = jobs[start:end]
            ends = await free.run(mine, sampling, play) if mine else []
        return self._of_all_ranks(hash(tuple(job.seed for job in jobs)), ends)

    def _of_all_ranks(self, asked: int, answers: Sequence[T]) -> list[T]:
        """What all ranks have, in the order of ranks. `asked` must be the same on all."""
        every: list[tuple[int, Sequence[T]]] = [(asked, [])] * self.crew.ranks
        dist.all_gather_object(every, (asked, answers), group=self.group)
        if any(other != asked for other, _ in every):
            raise RuntimeError("ranks ask their engines different things: not in lockstep")
        return [answer for _, part in every for answer in part]

    def sleep(self) -> None:
        """See RolloutEngine."""
        if self.engine is not None:
            self.engine.sleep()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. Takes sharded weights."""
        whole_ones = self._gathered(weights)
        if self.engine is not None:
            self.engine.load_weights(whole_ones)
        else:
            for _ in whole_ones:  # a part in the gathering nevertheless
                pass

    def _gathered(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights:
            with torch.inference_mode(False), torch.no_grad():
                tensor = weight.detach()
                yield name, gathered(tensor.to(self.dtype) if tensor.ndim > 1 else tensor)


def gathered(tensor: Tensor) -> Tensor:
    """A sharded tensor whole, any other as it is. All ranks must call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shares(requests: Sequence[Request], count: int) -> list[list[Request]]:
    """`requests` in `count` runs of about as many tokens each, in order: rollouts of a group
    stand together, so the prompt they share is read on one rank."""
    parts: list[list[Request]] = [[] for _ in range(count)]
    sizes = [len(request.prompt_ids) + request.max_tokens for request in requests]
    total, before = sum(sizes), 0
    for request, size in zip(requests, sizes, strict=True):
        parts[(2 * before + size) * count // (2 * total)].append(request)
        before += size
    return parts
