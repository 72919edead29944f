"""Runs to explore: one that a real sweep wrote with a scripted model, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from benchmarks.methods import described, find_method
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell
from benchmarks.sweep import Answering, Limits, Serving, sweep
from core.methods import method_settings
from core.tokens import Tokenizer
from core.types import Message, Sampling, Turn
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tests.conftest import ROOT

SOURCE = "checkpoints/pocket-base"
TASK = find_task("niah_single_1")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


@dataclass(slots=True)
class Forgetful:
    """A model that notes the needle and, on even samples, forgets it two turns later."""

    seen: dict[str, int] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def check(self, model: str) -> None:
        pass

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
    ) -> Turn:
        text = messages[-1].content
        needle = text.rpartition("One of the special magic numbers for ")[2].partition(".")[0]
        noted = text.partition("<memory>")[2].partition("</memory>")[0].strip()
        reply = "Nothing so far."
        if ": " in needle and "<section>" in text:
            reply = f"The magic number for {needle}."
            self.seen[reply] = 0
        elif noted in self.seen:
            self.seen[noted] += 1
            forgets = int(noted.rstrip(".")[-1]) % 2 == 0 and self.seen[noted] == 2
            reply = "The magic number is not known." if forgets else noted
        if tag == "answer":
            reply = f"Therefore, the answer is {noted or needle}"
        return Turn(tag, tuple(messages), reply, "stop", len(text) // 4, len(reply) // 4, 0.25)


def pocket_plan(samples: int = 4) -> Plan:
    """MemAgent and full context on the same samples, with the tokenizer of the repository."""
    tokenizer = Tokenizer.load(ROOT / SOURCE)
    names = {"memagent": {"chunk_tokens": 256, "reply_tokens": 64}, "full_context": {}}
    methods = {n: method_settings(find_method(n), n, given) for n, given in names.items()}
    cells = tuple(
        Cell(number, TASK.name, length, method, "m", samples)
        for number, (length, method) in enumerate(
            [(2048, "memagent"), (4096, "memagent"), (4096, "full_context")], 1
        )
    )
    settings: dict[str, Any] = {
        "suite": "scripted",
        "seed": 1,
        "tasks": {TASK.name: {"metric": "sub_em"}},
        "methods": {name: described(name) for name in names},
        "models": {"m": {"source": SOURCE, "tokenizer": tokenizer.fingerprint, "methods": methods}},
    }
    model = ModelPlan("m", "m", None, tokenizer, Sampling(seed=1), methods)
    return Plan("scripted", 1, cells, {TASK.name: TASK}, {"m": model}, Corpora(None), settings)


def run_plan(plan: Plan, run_dir: Path) -> None:
    """A real sweep of the plan, answered by the scripted model."""

    @asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        client: Any = Forgetful()
        yield Answering(client)

    @contextmanager
    def server(work: Mapping[str, float]) -> Iterator[Any]:
        yield Serving(answers)

    sweep(plan, run_dir, server, {"m": Limits(concurrency=4)})


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run: 12 samples, some of which failed."""
    run_dir = tmp_path_factory.mktemp("explored") / "run"
    run_plan(pocket_plan(), run_dir)
    return run_dir
