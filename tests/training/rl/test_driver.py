"""Rollouts that ask as they go, with a scripted engine that computes step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from core.context import Context
from core.errors import ServerDied
from core.types import Answer, Chat, Failure, Message, Problem, Sample, Sampling, Trajectory
from training.rl.collect import comparable
from training.rl.engines.driver import Driver
from training.rl.engines.engine import Generated, Job, Play, Request, run_freely, together

PLAIN = Sampling(temperature=1.0, top_p=1.0)


class Steps:
    """Each request takes as many steps as it may have tokens. `at_once`: how many ran in each."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.left: dict[str, tuple[int, Request]] = {}
        self.at_once: list[int] = []
        self.aborted: list[str] = []
        self.breaks_at = breaks_at

    def advance(self, new: Sequence[tuple[str, Request]]) -> list[tuple[str, Generated]]:
        self.left |= {name: (request.max_tokens, request) for name, request in new}
        if len(self.at_once) == self.breaks_at:
            raise RuntimeError("out of memory")
        self.at_once.append(len(self.left))
        self.left = {name: (n - 1, request) for name, (n, request) in self.left.items()}
        ended = [name for name, (n, _) in self.left.items() if n == 0]
        return [(name, said(self.left.pop(name)[1])) for name in ended]

    def abort(self, names: Sequence[str]) -> None:
        self.aborted += names


def said(request: Request) -> Generated:
    return Generated(request.prompt_ids[-1:], (-1.0,), "stop")


class Words:
    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        return [len(message.content) for message in messages]

    def decode(self, ids: Sequence[int]) -> str:
        return "x" * ids[0]


class Free:
    """A free engine over `Steps`."""

    tokenizer: Any = Words()
    window_tokens = 10**10

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        async with Driver(self.steps.advance, self.steps.abort) as ask:
            return await together(play(ask, job) for job in jobs)


class Talker:
    """Asks `turns` times for `tokens` tokens."""

    def __init__(self, turns: int, tokens: int) -> None:
        self.turns, self.tokens = turns, tokens

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        for _ in range(self.turns):
            turn = await chat([Message("user", "abc")], max_tokens=self.tokens, tag="talk")
        return Answer(turn.reply, None)


def job(number: int, method: Any) -> Job:
    sample = Sample(f"s{number}", "talk", number, Problem(Context(["x"], ""), "q"), (), "any")
    return Job(sample, method, (7, number))


async def test_short_rollouts_do_not_wait_for_a_long_one() -> None:
    class LongLast(Steps):
        """The long reply ends once the ten short ones have; in lockstep they would wait for it."""

        ended = 0

        def advance(self, new: Sequence[tuple[str, Request]]) -> list[tuple[str, Generated]]:
            if self.ended == 10:
                self.left = {name: (1, request) for name, (_, request) in self.left.items()}
            done = super().advance(new)
            self.ended += len(done)
            return done

    steps = LongLast()
    jobs = [job(0, Talker(1, 10**9)), job(1, Talker(8, 5)), job(2, Talker(2, 5))]
    async with asyncio.timeout(60):
        ends = await run_freely(Free(steps), jobs, PLAIN)  # type: ignore[arg-type]
    assert [end.sample_id for end in ends] == ["s0", "s1", "s2"]
    assert [len(end.turns) for end in ends] == [1, 8, 2]
    assert max(steps.at_once) == 3


async def test_each_turn_has_a_seed_of_its_own() -> None:
    seeds: list[tuple[int, ...]] = []

    class Noting(Steps):
        def advance(self, new: Sequence[tuple[str, Request]]) -> list[tuple[str, Generated]]:
            seeds.extend(request.seed for _, request in new)
            return super().advance(new)

    await run_freely(Free(Noting()), [job(0, Talker(2, 1)), job(1, Talker(1, 1))], PLAIN)  # type: ignore[arg-type]
    assert sorted(seeds) == [(7, 0, 0), (7, 0, 1), (7, 1, 0)]


async def test_an_engine_that_fails_stops_all() -> None:
    with pytest.raises(ServerDied, match="out of memory"):
        await run_freely(Free(Steps(breaks_at=3)), [job(0, Talker(1, 9))], PLAIN)  # type: ignore[arg-type]


async def test_what_runs_when_another_rollout_ends_the_run_is_aborted() -> None:
    class Lost:
        async def answer(self, problem: Problem, chat: Chat) -> Answer:
            await asyncio.sleep(0.02)
            raise ServerDied("the store is gone")

    steps = Steps()
    steps_jobs = [job(0, Talker(1, 10**9)), job(1, Lost())]
    with pytest.raises(ServerDied, match="the store is gone"):
        await run_freely(Free(steps), steps_jobs, PLAIN)  # type: ignore[arg-type]
    assert len(steps.aborted) == 1


async def test_an_engine_that_answers_in_lockstep_only_is_told() -> None:
    with pytest.raises(ValueError, match="in lockstep only"):
        await run_freely(object(), [job(0, Talker(1, 1))], PLAIN)  # type: ignore[arg-type]


def end(kind: str | None) -> Trajectory:
    failure = None if kind is None else Failure(kind, "")
    return Trajectory("s", (), None if failure else Answer("", None), failure, 0.0)


def test_rollouts_lost_on_the_way_to_the_engine_teach_nothing() -> None:
    good, lost, own = end(None), end("timeout"), end("prompt_too_long")
    assert comparable([good, lost, own, good]) == [good, own, good]
    assert comparable([lost, good, lost]) == [lost, good, lost], "one alone compares with nothing"
