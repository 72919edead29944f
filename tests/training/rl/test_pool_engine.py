"""The pool as a rollout engine: its bookkeeping against a stand-in, and all of it for real."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2ForCausalLM

from core.errors import RequestRejected, RequestTimeout, ServerDied, UsageError
from core.types import Message, Sampling
from serving.api.wire import Reply
from serving.client import Client
from tests.tiny_model import write_tiny_model
from training.rl.engines.engine import Generated, Request
from training.rl.engines.pool_engine import ATTEMPTS, PoolEngine, served_entry, start_pool_engine
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


# -- with a stand-in for the pool ----------------------------------------------------------------


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


# -- for real: Ray Serve, two vLLM replicas where the machine has room, HTTP -----------------------


@pytest.fixture(scope="module")
def model(folder: Path) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine(
    recipe: RlRecipe, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolEngine]:
    engine = start_pool_engine(
        recipe,
        folder,
        log_dir=tmp_path_factory.mktemp("logs"),
        weights_folder=tmp_path_factory.mktemp("weights"),
    )
    yield engine
    engine.pool.stop()


def spread_weights(model: Qwen2ForCausalLM, seed: int) -> None:
    """Random weights that bfloat16 holds, with which every layer changes what is said."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            spread = 1 + 0.1 * noise if "norm" in name else 0.15 * noise
            weight.copy_(spread.bfloat16().float())


def gaps(
    model: Qwen2ForCausalLM, requests: list[Request], replies: list[Generated]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """By how much each reply token's logprob differs from the model's, in float32."""
    found = []
    for request, reply in zip(requests, replies, strict=True):
        ids_1T = torch.tensor([request.prompt_ids + reply.reply_ids])
        with torch.inference_mode():
            logits_TV = model(input_ids=ids_1T).logits[0, len(request.prompt_ids) - 1 : -1]
        chosen_T = logits_TV.log_softmax(-1).gather(-1, torch.tensor(reply.reply_ids)[:, None])
        found.append(np.abs(chosen_T[:, 0].double().numpy() - reply.logprobs))
    return np.concatenate(found)


def requests(count: int = 24) -> list[Request]:
    rng = np.random.default_rng(0)
    return [
        Request(tuple(rng.integers(4, 300, size=length).tolist()), 8, (1, index))
        for index, length in enumerate(rng.integers(5, 90, size=count))
    ]


@pytest.mark.pool
@pytest.mark.slow
def test_every_replica_answers_with_new_weights_by_ids_and_seeds(
    engine: PoolEngine, model: Qwen2ForCausalLM
) -> None:
    """bfloat16 against float32: stale weights, or a stale output matrix, are off by whole units.

    The same seeds draw the same ids, but for a draw at an edge: which requests share a batch
    changes bfloat16's rounding, and with it a logprob by hundredths.
    """
    asked = requests()
    replies = []
    for seed in (1, 2):  # more than once, and with prompts seen before
        spread_weights(model, seed)
        engine.load_weights(model.named_parameters())
        assert set(engine.pool.weights_versions()) == {seed}
        replies = engine.generate(asked, PLAIN)
        off = gaps(model, asked, replies)
        assert off.mean() < 0.03, off.mean()
        assert off.max() < 0.3, off.max()
    again = engine.generate(asked, PLAIN)
    same = sum(a.reply_ids == b.reply_ids for a, b in zip(again, replies, strict=True))
    assert same > 0.8 * len(asked), same
    assert gaps(model, asked, again).mean() < 0.03
    assert gaps(model, asked, engine.generate(asked, CUT)).mean() < 0.03
    spread_weights(model, 1)
    assert gaps(model, asked, replies).mean() > 1


@pytest.mark.pool
@pytest.mark.cluster
def test_a_replica_that_dies_is_replaced_and_given_the_weights(
    engine: PoolEngine, model: Qwen2ForCausalLM
) -> None:
    spread_weights(model, 3)
    engine.load_weights(model.named_parameters())
    versions = engine.pool.weights_versions()
    processes = psutil.Process().children(recursive=True)
    victim = next(process for process in processes if process.name().startswith("VLLM::"))
    victim.kill()
    victim.wait()
    asked = requests()
    replies = engine.generate(asked, PLAIN)  # waits for the one in its place
    assert gaps(model, asked, replies).mean() < 0.03
    assert engine.pool.weights_versions() == versions


@pytest.mark.pool
@pytest.mark.slow
def test_text_comes_and_goes_as_the_same_ids(engine: PoolEngine) -> None:
    ids = engine.tokenizer.render_chat([Message("user", "Read.<|im_end|>\nThe sky is blue.")])
    (reply,) = engine.generate([Request(tuple(ids), 5, (3,))], PLAIN)
    assert 0 < len(reply.reply_ids) <= 5
    assert len(reply.logprobs) == len(reply.reply_ids)


@pytest.mark.pool
@pytest.mark.slow
def test_replicas_read_no_other_file_and_go_on(engine: PoolEngine, folder: Path) -> None:
    save_file({"a": torch.zeros(1)}, folder / "outside.safetensors")
    before = engine.pool.weights_versions()
    for name in (f"../{folder.name}/outside.safetensors", str(folder / "outside.safetensors")):
        with pytest.raises(RequestRejected, match="weights file"):
            engine.pool.load_weights(name, 99)
    assert engine.pool.weights_versions() == before
    assert len(engine.generate(requests(4), PLAIN)) == 4
