"""Rollouts for training: many `core.rollout.rollout()` at once against one engine, in lockstep, or
each as fast as it goes.

In lockstep an engine batch starts exactly when every rollout that is still running waits for a
reply, and holds all that wait, in the order of the jobs. So what is computed together depends on
the jobs and their seeds alone, never on timing: same seeds, same bytes.

    jobs -> rollout() each, its seat asks -> all seats wait -> engine.generate(batch) -> ...

That waits for the longest reply of every turn. A free engine takes each request as it comes
(`FreeEngine`): it is as busy as there are rollouts, and what shares a batch depends on timing.
A request that fails for itself alone costs its rollout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from torch import Tensor

from core.errors import HarnessError, PromptTooLong, RequestFailed
from core.rollout import rollout, told
from core.tokens import Tokenizer
from core.types import Message, Method, Sample, Sampling, TokenSpan, Trajectory, Turn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to run. Every draw of it comes from `seed`: the turn of index i is drawn
    with the seed (*seed, i)."""

    sample: Sample
    method: Method
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. `max_tokens` fits the window; `seed` decides every draw of the reply."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """One reply. `reply_ids` holds the closing token where `finish_reason` is `stop` (else it
    is `length`); `logprobs` one natural logarithm a reply id, of the distribution at the
    sampling temperature *before* top_p and top_k cut it (at temperature 0: at 1)."""

    reply_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


Ask = Callable[[Request], Awaitable[Generated]]
"""How one rollout asks. Raises RequestFailed where the request alone failed."""


class RolloutEngine(Protocol):
    """A model that answers prompts and takes new weights. `window_tokens` bounds a prompt and
    its reply together."""

    tokenizer: Tokenizer
    window_tokens: int

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> Sequence[Generated | RequestFailed]:
        """Replies in the order of the requests; an error in place of one that failed for itself
        alone. Blocks; called in a worker thread. `sampling.seed` is not looked at: each request
        has its own."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replaces weights, by their names in the checkpoint, without a restart. Takes them one by
        one, and wakes from sleep."""
        ...

    def sleep(self) -> None:
        """Nothing is asked until new weights come: gives memory away that others may take."""
        ...


Play = Callable[[Ask, Job], Coroutine[Any, Any, Trajectory]]
"""One rollout from its beginning to its end, asking so."""


class FreeEngine(Protocol):
    """An engine that takes requests one by one, as they come."""

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        """Plays all jobs at once, each with a way to ask; their trajectories, in order."""
        ...


async def run_freely(
    engine: RolloutEngine, jobs: Sequence[Job], sampling: Sampling
) -> list[Trajectory]:
    """As `run_rollouts`, each rollout as fast as it goes.

    Raises:
        ValueError: no jobs, or the engine is no FreeEngine.
        Exception: as run_rollouts does.
    """
    if not jobs:
        raise ValueError("run_freely: no jobs")
    run = getattr(engine, "run", None)
    if run is None:
        raise ValueError(f"{type(engine).__name__} answers in lockstep only")

    async def play(ask: Ask, job: Job) -> Trajectory:
        return await rollout(job.sample, job.method, _Seat(engine, ask, job.seed))

    ends: list[Trajectory] = await run(jobs, sampling, play)
    return ends


async def together(rollouts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once, in order; the first that raises stops the others."""
    tasks = [asyncio.create_task(one) for one in rollouts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_rollouts(
    engine: RolloutEngine, jobs: Sequence[Job], sampling: Sampling
) -> list[Trajectory]:
    """The jobs' trajectories, in order. Their turns carry token ids and logprobs.

    A prompt that leaves no room for a reply fails its own rollout (`PromptTooLong`).

    Raises:
        ValueError: no jobs.
        Exception: whatever the engine raises stops all of them, and so does a fatal
            HarnessError of one rollout.
    """
    if not jobs:
        raise ValueError("run_rollouts: no jobs")
    lockstep = _Lockstep(len(jobs))
    running = [
        asyncio.create_task(
            _seated(lockstep, _Seat(engine, partial(lockstep.ask, index), job.seed), job)
        )
        for index, job in enumerate(jobs)
    ]
    try:
        # One worker of our own: the engine's compute threads belong to the thread that calls.
        with ThreadPoolExecutor(1) as worker:
            loop = asyncio.get_running_loop()
            while requests := await lockstep.all_waiting():
                lockstep.answer(
                    await loop.run_in_executor(worker, engine.generate, requests, sampling)
                )
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _seated(lockstep: _Lockstep, seat: _Seat, job: Job) -> Trajectory:
    try:
        return await rollout(job.sample, job.method, seat)
    except HarnessError as error:  # a fatal one: the others must not go on for long
        lockstep.failure = error
        raise
    finally:
        lockstep.close_seat()


class _Lockstep:
    """Knows how many seats are open and which wait. All of it runs on the event loop."""

    def __init__(self, seats: int) -> None:
        self._open = seats
        self._waiting: dict[int, tuple[Request, asyncio.Future[Generated]]] = {}
        self._changed = asyncio.Event()
        self.failure: HarnessError | None = None

    async def ask(self, index: int, request: Request) -> Generated:
        """Waits for the reply. A seat asks one thing at a time."""
        if index in self._waiting:
            raise RuntimeError(f"rollout {index} asked again before its reply came")
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        self._waiting[index] = (request, future)
        self._changed.set()
        return await future

    def close_seat(self) -> None:
        self._open -= 1
        self._changed.set()

    async def all_waiting(self) -> list[Request]:
        """What all open seats ask, in the order of the seats; empty once all are closed.
        Raises `failure` if there is one."""
        while len(self._waiting) < self._open:
            self._changed.clear()
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure
        self._waiting = dict(sorted(self._waiting.items()))
        return [request for request, _ in self._waiting.values()]

    def answer(self, replies: Sequence[Generated | RequestFailed]) -> None:
        asked, self._waiting = self._waiting, {}
        for (_, future), reply in zip(asked.values(), replies, strict=True):
            if isinstance(reply, RequestFailed):
                future.set_exception(reply)
            else:
                future.set_result(reply)


class _Seat:
    """The `core.types.Chat` of one rollout."""

    def __init__(self, engine: RolloutEngine, ask: Ask, seed: tuple[int, ...]) -> None:
        self.engine = engine
        self.ask = ask
        self.seed = seed
        self.asked = 0

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        tag: str,
        reads: Sequence[TokenSpan] = (),
        memory: Callable[[str], str] | None = None,
    ) -> Turn:
        """Raises PromptTooLong where the prompt leaves no room in the window."""
        started = time.monotonic()
        prompt_ids = tuple(await asyncio.to_thread(self.engine.tokenizer.render_chat, messages))
        window = self.engine.window_tokens
        if len(prompt_ids) >= window:
            raise PromptTooLong(
                f"the prompt has {len(prompt_ids)} tokens: no room for a reply in the model's "
                f"window of {window}. Take smaller chunks or budgets."
            )
        turn_seed = (*self.seed, self.asked)
        self.asked += 1
        request = Request(prompt_ids, min(max_tokens, window - len(prompt_ids)), turn_seed)
        reply = await self.ask(request)
        turn = Turn(
            tag=tag,
            messages=tuple(messages),
            reply=self.engine.tokenizer.decode(reply.reply_ids),
            finish_reason=reply.finish_reason,
            prompt_tokens=len(prompt_ids),
            completion_tokens=len(reply.reply_ids),
            seconds=time.monotonic() - started,
            prompt_ids=prompt_ids,
            reply_ids=reply.reply_ids,
            logprobs=reply.logprobs,
        )
        return told(turn, reads, memory)
