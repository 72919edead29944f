"""A sweep of MemAgent against a null server: of samples that are made once, and, where wanted, of
chunks and prompts that are tokenized before it begins."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.memagent import MemAgent, MemAgentSettings
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell
from benchmarks.sweep import Answering, Limits, Serving, sweep
from core.context import Chunk, Context
from core.rollout import rollout
from core.tokens import Tokenizer
from core.types import Message, Problem, Sample, Sampling, Turn
from perf.null.server import REPLY
from serving.client import Client
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

TASK = find_task("niah_multikey_2")


@dataclass(frozen=True)
class Made:
    """A task whose samples are all the one that is there already."""

    one: Sample
    name: str = TASK.name
    summary: str = TASK.summary
    scorer: Any = TASK.scorer

    def sample(self, coordinates: Coordinates, materials: Materials) -> Sample:
        return replace(self.one, id=f"id{coordinates.index}", index=coordinates.index)


@dataclass(frozen=True, slots=True)
class Cut(Context):
    """A context that was cut into its chunks before."""

    made: tuple[Chunk, ...] = ()

    def chunks(self, tokenizer: Tokenizer, size: int) -> Iterator[Chunk]:
        return iter(self.made)


class Recorded(Tokenizer):
    """A tokenizer that hands out the ids of chats that it has rendered before."""

    recorded: Mapping[str, list[int]] = {}

    def record(self, prompts: Sequence[Message]) -> None:
        self.recorded = {_mark(prompt): self.render_chat([prompt]) for prompt in prompts}
        assert len(self.recorded) == len(prompts)

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        known = self.recorded.get(_mark(messages[0]))
        return super().render_chat(messages) if known is None else known


def _mark(message: Message) -> str:
    """What tells a prompt from the others, without reading all of it."""
    middle = len(message.content) // 2
    return message.content[middle : middle + 100]


def made_sample(tokenizer: Tokenizer, tokens: int) -> Sample:
    """A sample of so many tokens, without evidence: finding it would tokenize."""
    made = TASK.sample(Coordinates(0, tokens, 1), Materials(tokenizer, Corpora(None)))
    return replace(made, evidence=())


def tokenized_sample(
    folder: Path, chunk_tokens: int, chunks: int, *, repeats: int = 1
) -> tuple[Recorded, Sample]:
    """A tokenizer and a sample that need no tokenizing; the sample's chunks so many times over."""
    tokenizer = Recorded.load(folder)
    assert isinstance(tokenizer, Recorded)
    sample = made_sample(tokenizer, chunks * chunk_tokens)
    tokenizer.record(prompts_of(tokenizer, sample, chunk_tokens))
    context = sample.problem.context
    made = tuple(context.chunks(tokenizer, chunk_tokens)) * repeats
    cut = Cut(context.pieces, context.separator, made=made)
    return tokenizer, replace(sample, problem=Problem(cut, sample.problem.question))


def plan_of(tokenizer: Tokenizer, sample: Sample, samples: int, chunk_tokens: int) -> Plan:
    """A plan of that sample, so many times."""
    methods: dict[str, Any] = {"memagent": {"chunk_tokens": chunk_tokens, "reply_tokens": 1024}}
    model = ModelPlan("m", "m", None, tokenizer, Sampling(seed=1), methods)
    cells = (Cell(0, TASK.name, 0, "memagent", "m", samples),)
    task: Any = Made(sample)
    return Plan("perf", 1, cells, {TASK.name: task}, {"m": model}, Corpora(None), {})


def swept(plan: Plan, client: Client, concurrency: int) -> None:
    """Runs the plan through the client, to a store of its own."""

    @contextlib.asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        yield Answering(client)

    @contextlib.contextmanager
    def server(work: Mapping[str, float]) -> Iterator[Serving]:
        yield Serving(answers)

    with tempfile.TemporaryDirectory() as folder:
        sweep(plan, Path(folder), server, {"m": Limits(concurrency)})


def prompts_of(tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[Message]:
    """The prompts of one sample's turns."""
    prompts: list[Message] = []

    async def chat(messages: Any, *, tag: str, **rest: Any) -> Turn:
        prompts.append(messages[0])
        return Turn(tag, (), REPLY, "stop", 0, 0, 0.0)

    method = MemAgent(tokenizer, MemAgentSettings(chunk_tokens=chunk_tokens))
    asyncio.run(rollout(sample, method, chat))
    return prompts
