"""The pool as a rollout engine: its bookkeeping, with a stand-in for the pool."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from core.errors import RequestRejected, RequestTimeout, ServerDied, UsageError
from core.types import Sampling
from serving.api.wire import Reply
from serving.client import Client
from tests.tiny_model import write_tiny_model
from training.rl.engines.engine import Generated, Request
from training.rl.engines.pool_engine import ATTEMPTS, PoolEngine, served_entry
from training.rl.engines.vllm_engine import integer_seed
from training.rl.recipe import RlRecipe, Stage, load_rl_recipe

PLAIN = Sampling(temperature=1.0, top_p=1.0)
CUT = Sampling(temperature=1.0, top_p=0.8)
ASKED = [Request((5, 6, 7 + i), 4, (1, i)) for i in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint; its output matrix is tied to the embedding."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="module")
def recipe() -> RlRecipe:
    return load_rl_recipe("pocket").model_copy(update={"engine": "pool"})


def test_a_recipes_options_are_those_of_the_replicas(recipe: RlRecipe, folder: Path) -> None:
    changes = {"tensor_parallel": 2, "engine_memory": 0.6, "engine_options": {"max_num_seqs": 9}}
    entry = served_entry(recipe.model_copy(update=changes), folder)
    assert entry.cpu is not None
    assert entry.tensor_parallel == 2
    assert (entry.engine["gpu_memory_utilization"], entry.engine["max_num_seqs"]) == (0.6, 9)
    assert "enforce_eager" not in entry.engine, "compiled on GPUs"
    assert (entry.cpu.engine["enforce_eager"], entry.cpu.engine["max_num_seqs"]) == (True, 9)


@dataclass
class FakePool:
    """Tells the next of `versions` each time it is asked, the last one for ever."""

    entry: Any
    versions: list[list[int]] = field(default_factory=lambda: [[0, 0]])
    loaded: list[tuple[str, int]] = field(default_factory=list)
    refuses: bool = False
    base_url: str = "http://127.0.0.1:1/v1"

    def weights_versions(self) -> list[int]:
        return self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]

    def load_weights(self, name: str, version: int) -> None:
        if self.refuses:
            raise RequestRejected("no such layer")
        self.loaded.append((name, version))

    def check(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the client was asked; it replies with the prompt's last id."""
    asked: list[tuple[Any, ...]] = []

    async def complete(
        self: Client, model: str, prompt_ids: Any, *, max_tokens: int, sampling: Sampling
    ) -> Reply:
        asked.append((model, prompt_ids, max_tokens, sampling))
        await asyncio.sleep(0.001 * (10 - len(asked)))  # the last one answers first
        return Reply("", "length", len(prompt_ids), 1, prompt_ids, prompt_ids[-1:], (-0.5,))

    monkeypatch.setattr(Client, "complete", complete)
    return asked


def engine_over(pool: Any, folder: Path) -> PoolEngine:
    return PoolEngine(pool, folder)


@pytest.fixture
def fake(recipe: RlRecipe, folder: Path) -> FakePool:
    return FakePool(served_entry(recipe, folder))


def test_requests_go_out_together_each_with_its_own_seed(
    fake: FakePool, asked: list[Any], tmp_path: Path
) -> None:
    replies = engine_over(fake, tmp_path).generate(ASKED, PLAIN)
    assert replies == [Generated((7 + i,), (-0.5,), "length") for i in range(3)]
    assert [prompt for _, prompt, _, _ in asked] == [request.prompt_ids for request in ASKED]
    assert [sampling.seed for *_, sampling in asked] == [integer_seed(r) for r in ASKED]
    assert {(model, limit) for model, _, limit, _ in asked} == {(fake.entry.name, 4)}


def test_a_request_that_fails_alone_stands_as_its_error(
    fake: FakePool, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Client.complete

    async def fails(self: Client, model: str, prompt_ids: Any, **rest: Any) -> Reply:
        if prompt_ids[-1] == 8:
            raise RequestTimeout("no reply in 1800 s")
        return await complete(self, model, prompt_ids, **rest)

    monkeypatch.setattr(Client, "complete", fails)
    first, second, third = engine_over(fake, tmp_path).generate(ASKED, PLAIN)
    assert isinstance(second, RequestTimeout)
    assert [first, third] == [Generated((7 + i,), (-0.5,), "length") for i in (0, 2)]


async def test_rollouts_ask_freely_and_are_played_again_where_a_replica_died(
    fake: FakePool, asked: list[Any], tmp_path: Path
) -> None:
    fake.versions = [[0, 1], [0, 0]]

    async def play(ask: Any, job: Any) -> Any:
        return [(await ask(ASKED[job])).reply_ids, (await ask(ASKED[job])).reply_ids]

    ends: Any = await engine_over(fake, tmp_path).run([0, 1, 2], PLAIN, play)  # type: ignore[list-item]
    assert ends == [[(7 + i,)] * 2 for i in range(3)]
    assert len(asked) == 2 * 6


@pytest.mark.parametrize(
    ("temperature", "top_p", "mode"),
    [(1.0, 1.0, "raw_logprobs"), (1.0, 0.9, "raw_logprobs"), (0.7, 1.0, "processed_logprobs")],
)
def test_logprobs_are_those_before_top_p_cuts(
    recipe: RlRecipe, folder: Path, temperature: float, top_p: float, mode: str
) -> None:
    drawn = recipe.model_copy(update={"temperature": temperature, "top_p": top_p})
    assert served_entry(drawn, folder).engine["logprobs_mode"] == mode


def test_where_vllm_has_no_such_logprobs_the_engines_are_not_for_training(
    recipe: RlRecipe, folder: Path
) -> None:
    both = recipe.model_copy(update={"temperature": 0.7, "top_p": 0.9, "old_logprobs": "engine"})
    with pytest.raises(UsageError, match="those after top_p cut"):
        served_entry(both, folder)
    served_entry(both.model_copy(update={"old_logprobs": "trainer"}), folder)
    hotter = Stage(start=5, temperature=1.3, top_p=1.0)
    later = both.model_copy(update={"temperature": 1.0, "stages": (hotter,)})
    with pytest.raises(UsageError, match="top_p cut"):
        served_entry(later, folder)
    uncut = served_entry(later.model_copy(update={"top_p": 1.0}), folder)
    assert uncut.engine["logprobs_mode"] == "processed_logprobs"


def test_each_weights_file_replaces_the_one_before(fake: FakePool, tmp_path: Path) -> None:
    engine = engine_over(fake, tmp_path)
    for value in (1.0, 2.0):
        engine.load_weights([("a", torch.full((2,), value, requires_grad=True))])
    assert fake.loaded == [("step-1.safetensors", 1), ("step-2.safetensors", 2)]
    assert [file.name for file in tmp_path.iterdir()] == ["step-2.safetensors"]
    (tensor,) = load_file(tmp_path / "step-2.safetensors").values()
    assert torch.equal(tensor, torch.full((2,), 2.0, dtype=torch.bfloat16))


def test_a_batch_is_asked_again_where_a_replica_lost_the_weights(
    fake: FakePool, asked: list[Any], tmp_path: Path
) -> None:
    engine = engine_over(fake, tmp_path)
    engine.load_weights([("a", torch.ones(2))])
    fake.versions = [[1, 0], [1, 1]]
    replies = engine.generate(ASKED, PLAIN)
    assert [reply.reply_ids for reply in replies] == [(7,), (8,), (9,)]
    assert len(asked) == 2 * len(ASKED)
    assert asked[:3] == asked[3:]
    assert fake.loaded == [("step-1.safetensors", 1)] * 2


def test_replicas_that_keep_dying_end_it(fake: FakePool, asked: list[Any], tmp_path: Path) -> None:
    fake.versions = [[0, 3]]
    with pytest.raises(ServerDied, match=f"died under {ATTEMPTS} batches"):
        engine_over(fake, tmp_path).generate(ASKED, PLAIN)
    assert len(asked) == ATTEMPTS * len(ASKED)


def test_weights_that_are_refused_do_not_count(
    fake: FakePool, asked: list[Any], tmp_path: Path
) -> None:
    engine = engine_over(fake, tmp_path)
    fake.refuses = True
    with pytest.raises(RequestRejected, match="no such layer"):
        engine.load_weights([("a", torch.ones(2))])
    assert len(engine.generate(ASKED, PLAIN)) == len(ASKED)  # the replicas still tell 0
