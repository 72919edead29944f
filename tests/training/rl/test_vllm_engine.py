"""vLLM as a rollout engine, against the torch engine: one real engine for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from core.context import Context
from core.tokens import Tokenizer
from core.types import GREEDY, Answer, Chat, Message, Problem, Sample, Sampling
from tests.tiny_model import write_tiny_model
from training.rl.engines.engine import Generated, Job, Request, run_freely, run_rollouts
from training.rl.engines.torch_engine import TorchEngine
from training.rl.engines.vllm_engine import ENVIRONMENT, VllmEngine
from training.rl.recipe import load_rl_recipe
from training.rl.run import make_engine

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow]

PLAIN = Sampling(temperature=1.0, top_p=1.0)


def spread_weights(model: Qwen2ForCausalLM, seed: int) -> None:
    """Random weights, all of them, with which every layer changes what is said."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            weight.copy_(1 + 0.1 * noise if "norm" in name else 0.15 * noise)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Qwen2ForCausalLM, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)  # its output matrix is tied to the embedding
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    spread_weights(model, 1)
    model.save_pretrained(folder)
    return model.eval(), folder


@pytest.fixture(scope="module")
def vllm_engine(model: tuple[Qwen2ForCausalLM, Path]) -> Iterator[VllmEngine]:
    with pytest.MonkeyPatch.context() as patch:  # other tests' servers must not see these
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield VllmEngine(
            model[1], dtype="float32", max_num_seqs=16, max_num_batched_tokens=2048, seed=0
        )


@pytest.fixture(scope="module")
def torch_engine(model: tuple[Qwen2ForCausalLM, Path]) -> TorchEngine:
    tokenizer = Tokenizer.load(model[1])
    return TorchEngine(model[0], tokenizer, batch_tokens=4096, precision="float32")


def requests(max_tokens: int = 12) -> list[Request]:
    rng = np.random.default_rng(0)
    return [
        Request(tuple(rng.integers(4, 300, size=length).tolist()), max_tokens, (1, index))
        for index, length in enumerate(rng.integers(5, 90, size=8))
    ]


def largest_gap(some: list[Generated], others: list[Generated]) -> float:
    return max(
        abs(one - other)
        for a, b in zip(some, others, strict=True)
        for one, other in zip(a.logprobs, b.logprobs, strict=True)
    )


def test_replies_and_logprobs_are_those_of_the_torch_engine(
    vllm_engine: VllmEngine, torch_engine: TorchEngine
) -> None:
    assert vllm_engine.window_tokens == torch_engine.window_tokens
    theirs = vllm_engine.generate(requests(), GREEDY)
    ours = torch_engine.generate(requests(), GREEDY)
    assert [reply.reply_ids for reply in theirs] == [reply.reply_ids for reply in ours]
    assert [reply.finish_reason for reply in theirs] == [reply.finish_reason for reply in ours]
    assert largest_gap(theirs, ours) < 1e-3


def test_a_reply_ends_with_the_closing_token(
    vllm_engine: VllmEngine, torch_engine: TorchEngine
) -> None:
    replies = vllm_engine.generate(requests(max_tokens=200), PLAIN)
    (end,) = torch_engine.end_ids
    stopped = [reply for reply in replies if reply.finish_reason == "stop"]
    assert stopped
    assert all(reply.reply_ids[-1] == end for reply in stopped)
    assert all(end not in reply.reply_ids[:-1] for reply in replies)


def test_a_seed_decides_the_reply(vllm_engine: VllmEngine) -> None:
    first = vllm_engine.generate(requests(), PLAIN)
    again = vllm_engine.generate(requests()[::-1], PLAIN)[::-1]
    assert [reply.reply_ids for reply in again] == [reply.reply_ids for reply in first]
    same_prompt = [Request(requests()[0].prompt_ids, 12, (2, i)) for i in range(4)]
    assert len({reply.reply_ids for reply in vllm_engine.generate(same_prompt, PLAIN)}) == 4


def test_more_prompt_tokens_than_a_step_takes_are_answered_by_seed(
    vllm_engine: VllmEngine,
) -> None:
    """Where vLLM split a prompt, its seeded sampler died on CPUs."""
    prompt = tuple(np.random.default_rng(4).integers(4, 300, size=900).tolist())
    many = [Request((4 + i, *prompt), 3, (3, i)) for i in range(5)]
    replies = vllm_engine.generate(many, PLAIN)
    assert all(len(reply.logprobs) == len(reply.reply_ids) > 0 for reply in replies)


def test_logprobs_after_new_weights_are_those_of_the_new_weights(
    vllm_engine: VllmEngine, torch_engine: TorchEngine, model: tuple[Qwen2ForCausalLM, Path]
) -> None:
    """More than once, the tied output matrix included, and with prompts seen before."""
    before = vllm_engine.generate(requests(), GREEDY)
    for seed in (2, 3):
        spread_weights(model[0], seed)
        for engine in (vllm_engine, torch_engine):
            engine.load_weights(model[0].named_parameters())
        theirs = vllm_engine.generate(requests(), GREEDY)
        ours = torch_engine.generate(requests(), GREEDY)
        assert [reply.reply_ids for reply in theirs] == [reply.reply_ids for reply in ours]
        assert largest_gap(theirs, ours) < 1e-3
        assert [reply.reply_ids for reply in theirs] != [reply.reply_ids for reply in before]


@pytest.mark.parametrize(
    "changed",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        *(
            f"model.layers.1.{part}"
            for part in (
                "self_attn.q_proj.weight",
                "self_attn.k_proj.bias",
                "self_attn.v_proj.weight",
                "self_attn.o_proj.weight",
                "mlp.gate_proj.weight",
                "mlp.up_proj.weight",
                "mlp.down_proj.weight",
                "input_layernorm.weight",
                "post_attention_layernorm.weight",
            )
        ),
    ],
)
def test_each_kind_of_weight_arrives(
    vllm_engine: VllmEngine,
    torch_engine: TorchEngine,
    model: tuple[Qwen2ForCausalLM, Path],
    changed: str,
) -> None:
    with torch.no_grad():
        weight = model[0].get_parameter(changed)
        weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)))
    for engine in (vllm_engine, torch_engine):
        engine.load_weights(model[0].named_parameters())
    theirs = vllm_engine.generate(requests(2), GREEDY)
    ours = torch_engine.generate(requests(2), GREEDY)
    assert largest_gap(theirs, ours) < 1e-3


def test_a_recipes_engine_gives_the_logprobs_that_its_sampling_needs(
    model: tuple[Qwen2ForCausalLM, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "training.rl.engines.vllm_engine.VllmEngine",
        lambda folder, **options: asked.update(options),
    )
    changes = {"engine": "vllm", "top_p": 0.9, "tensor_parallel": 2, "engine_memory": 0.6}
    changes |= {"engine_sleeps": True, "engine_options": {"max_model_len": 64}}
    cut = load_rl_recipe("pocket").model_copy(update=changes)
    policy, folder = model
    make_engine(cut, folder, policy, policy.device, Tokenizer.load(folder), max_num_seqs=8)
    assert asked == {
        "logprobs_mode": "raw_logprobs",
        "max_num_seqs": 8,
        "sleeps": True,
        "gpu_memory_utilization": 0.6,
        "tensor_parallel_size": 2,
        "max_model_len": 64,
    }


class Told:
    """In place of vLLM: what it was told, in order, and how many weights it took at a time."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sleep(self, level: int) -> None:
        self.calls.append(("sleep", level))

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(("wake_up", *tags))

    def collective_rpc(self, method: Any, args: tuple[Any, ...]) -> None:
        for name, _ in args[0]:
            self.calls.append(name)

    def reset_prefix_cache(self) -> None:
        self.calls.append("reset")


def test_it_sleeps_while_the_policy_learns_and_wakes_for_new_weights() -> None:
    engine: Any = object.__new__(VllmEngine)
    engine._llm, engine._sleeps, engine._asleep = Told(), True, False

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in "ab":
            engine._llm.calls.append(f"gather {name}")
            yield name, torch.zeros(1)

    engine.sleep()
    engine.sleep()
    engine.load_weights(weights())
    assert engine._llm.calls == [
        ("sleep", 2), ("wake_up", "weights"),
        "gather a", "a", "gather b", "b",  # one at a time
        ("wake_up", "kv_cache"), "reset",
    ]  # fmt: skip
    engine._sleeps = False
    engine.sleep()
    assert engine._llm.calls[-1] == "reset"


async def test_free_rollouts_are_those_in_lockstep(vllm_engine: VllmEngine) -> None:
    class Talker:
        async def answer(self, problem: Problem, chat: Chat) -> Answer:
            said = problem.question
            for _ in range(3):
                said = (await chat([Message("user", said)], max_tokens=6, tag="talk")).reply
            return Answer(said, None)

    problems = [Problem(Context(["x"], ""), "ab" * i) for i in range(1, 5)]
    jobs = [
        Job(Sample(f"s{i}", "t", i, problem, (), "any"), Talker(), (i,))
        for i, problem in enumerate(problems)
    ]
    both = [await run(vllm_engine, jobs, PLAIN) for run in (run_rollouts, run_freely)]
    ids = [[[turn.reply_ids for turn in end.turns] for end in ends] for ends in both]
    assert ids[0] == ids[1]
    assert all(len(end.turns) == 3 for ends in both for end in ends)
