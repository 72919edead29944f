"""The pool as a rollout engine: Ray Serve, two vLLM replicas where the machine has room, HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen2ForCausalLM

from core.errors import RequestRejected
from core.types import Message, Sampling
from tests.tiny_model import write_tiny_model
from training.rl.engines.engine import Generated, Request
from training.rl.engines.pool_engine import PoolEngine, start_pool_engine
from training.rl.recipe import load_rl_recipe

pytestmark = [pytest.mark.pool, pytest.mark.slow]

PLAIN = Sampling(temperature=1.0, top_p=1.0)
CUT = Sampling(temperature=1.0, top_p=0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint; its output matrix is tied to the embedding."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolEngine]:
    engine = start_pool_engine(
        load_rl_recipe("pocket").model_copy(update={"engine": "pool"}),
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


def test_text_comes_and_goes_as_the_same_ids(engine: PoolEngine) -> None:
    ids = engine.tokenizer.render_chat([Message("user", "Read.<|im_end|>\nThe sky is blue.")])
    (reply,) = engine.generate([Request(tuple(ids), 5, (3,))], PLAIN)
    assert 0 < len(reply.reply_ids) <= 5
    assert len(reply.logprobs) == len(reply.reply_ids)


def test_replicas_read_no_other_file_and_go_on(engine: PoolEngine, folder: Path) -> None:
    save_file({"a": torch.zeros(1)}, folder / "outside.safetensors")
    before = engine.pool.weights_versions()
    for name in (f"../{folder.name}/outside.safetensors", str(folder / "outside.safetensors")):
        with pytest.raises(RequestRejected, match="weights file"):
            engine.pool.load_weights(name, 99)
    assert engine.pool.weights_versions() == before
    assert len(engine.generate(requests(4), PLAIN)) == 4
