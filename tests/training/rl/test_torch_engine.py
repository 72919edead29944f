"""The torch engine against transformers, in float32, on random weights with a spread-out say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.context import Context
from core.errors import ServerDied, UsageError
from core.tokens import Tokenizer
from core.types import GREEDY, Answer, Chat, Message, Problem, Sample, Sampling, Trajectory
from tests.tiny_model import write_tiny_model
from training.rl.engines.engine import Generated, Job, Request, run_rollouts
from training.rl.engines.torch_engine import TorchEngine, sample

PLAIN = Sampling(temperature=1.0, top_p=1.0)
VOCABULARY, ENDS, WINDOW = 97, [3, 4, 5, 6, 7], 512


def random_model(
    *, key_heads: int = 2, tied: bool = False, seed: int = 0, window: int = WINDOW
) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=key_heads,
        max_position_embeddings=window,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=ENDS,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            weight.copy_(1 + 0.1 * noise if "norm" in name else 0.25 * noise)
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return Tokenizer.load(folder)


def engine_of(model: Qwen2ForCausalLM, tokenizer: Tokenizer, tokens: int = 4096) -> TorchEngine:
    return TorchEngine(model, tokenizer, batch_tokens=tokens, precision="float32")


def prompts(count: int, *, shortest: int = 1, longest: int = 300) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(7)
    lengths = rng.integers(shortest, longest + 1, size=count)
    return [tuple(rng.integers(4, VOCABULARY, size=n).tolist()) for n in lengths]


def requests_of(found: Sequence[tuple[int, ...]], max_tokens: int = 24) -> list[Request]:
    return [Request(prompt, max_tokens, (5, index)) for index, prompt in enumerate(found)]


def logprobs_by_forward(
    model: Qwen2ForCausalLM, request: Request, reply: Generated, temperature: float = 1.0
) -> Tensor:
    ids = torch.tensor([request.prompt_ids + reply.reply_ids])
    with torch.no_grad():
        logprobs = (model(ids).logits[0] / temperature).log_softmax(-1)
    at = torch.arange(len(reply.reply_ids)) + len(request.prompt_ids) - 1
    return logprobs[at, torch.tensor(reply.reply_ids)]


@pytest.mark.parametrize(("key_heads", "tied"), [(1, True), (2, False), (4, False)])
def test_greedy_replies_are_those_of_transformers(
    tokenizer: Tokenizer, key_heads: int, tied: bool
) -> None:
    model = random_model(key_heads=key_heads, tied=tied)
    requests = requests_of(prompts(12))
    replies = engine_of(model, tokenizer).generate(requests, GREEDY)
    for request, reply in zip(requests, replies, strict=True):
        out = model.generate(
            torch.tensor([request.prompt_ids]), max_new_tokens=24, do_sample=False, pad_token_id=0
        )
        assert list(reply.reply_ids) == out[0, len(request.prompt_ids) :].tolist()
    assert "stop" in {reply.finish_reason for reply in replies}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_a_full_forward_pass(
    tokenizer: Tokenizer, temperature: float
) -> None:
    model = random_model()
    requests = requests_of(prompts(6))
    engine = engine_of(model, tokenizer)
    replies = engine.generate(requests, replace(PLAIN, temperature=temperature))
    for request, reply in zip(requests, replies, strict=True):
        expected = logprobs_by_forward(model, request, reply, temperature)
        torch.testing.assert_close(torch.tensor(reply.logprobs), expected, rtol=1e-4, atol=1e-4)


def test_a_reply_does_not_depend_on_its_batch(tokenizer: Tokenizer) -> None:
    model = random_model()
    requests = requests_of(prompts(9, longest=150))
    together = engine_of(model, tokenizer).generate(requests, PLAIN)
    backwards = engine_of(model, tokenizer, 400).generate(requests[::-1], PLAIN)[::-1]
    alone = [engine_of(model, tokenizer).generate([one], PLAIN)[0] for one in requests]
    for replies in (backwards, alone):
        assert [r.reply_ids for r in replies] == [r.reply_ids for r in together]
        for reply, other in zip(replies, together, strict=True):
            assert reply.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_equal_prompts_are_read_once_and_answered_each_by_its_seed(tokenizer: Tokenizer) -> None:
    model = random_model()
    shared, other = prompts(2, shortest=50)
    requests = requests_of([shared, other, shared, shared, other])
    engine = engine_of(model, tokenizer)
    read: list[int] = []
    prefill = engine.net.prefill

    def counted(found: Sequence[Sequence[int]], *rest: object) -> Tensor:
        read.append(len(found))
        return prefill(found, *rest)  # type: ignore[arg-type]

    engine.net.prefill = counted  # type: ignore[assignment, method-assign]
    replies = engine.generate(requests, PLAIN)
    assert sum(read) == 2
    assert len({reply.reply_ids for reply in replies}) == 5
    for request, reply in zip(requests, replies, strict=True):
        expected = logprobs_by_forward(model, request, reply)
        torch.testing.assert_close(torch.tensor(reply.logprobs), expected, rtol=1e-4, atol=1e-4)


def test_a_reply_ends_with_the_closing_token_or_at_its_budget(tokenizer: Tokenizer) -> None:
    replies = engine_of(random_model(), tokenizer).generate(requests_of(prompts(20)), PLAIN)
    stopped = [reply for reply in replies if reply.finish_reason == "stop"]
    assert 0 < len(stopped) < 20
    for reply in replies:
        assert (reply.reply_ids[-1] in ENDS) == (reply.finish_reason == "stop")
        assert not set(ENDS) & set(reply.reply_ids[:-1])
        assert len(reply.reply_ids) == 24 or reply.finish_reason == "stop"
        assert len(reply.logprobs) == len(reply.reply_ids)


def test_requests_that_cannot_be_answered_are_refused(tokenizer: Tokenizer) -> None:
    engine = engine_of(random_model(), tokenizer, 600)
    for request in (Request((), 3, (0,)), Request((5,), 0, (0,)), Request((5,) * 500, 13, (0,))):
        with pytest.raises(ValueError, match="a request"):
            engine.generate([request], PLAIN)
    with pytest.raises(UsageError, match="repetition"):
        engine.generate(requests_of(prompts(1)), replace(PLAIN, repetition_penalty=1.1))


def test_draws_follow_the_distribution() -> None:
    torch.manual_seed(0)
    logits_1V = 2 * torch.randn(1, 30)
    draws_B = torch.tensor(np.random.default_rng(3).random(20_000))
    tokens_B, _ = sample(logits_1V.expand(20_000, -1), draws_B, PLAIN)
    expected_V = logits_1V.softmax(-1)[0].double()
    counts = torch.bincount(tokens_B, minlength=30).numpy()
    found = stats.chisquare(counts, (expected_V / expected_V.sum() * 20_000).numpy())
    assert found.pvalue > 0.01


def test_top_p_and_top_k_cut_the_draw_but_not_the_logprob() -> None:
    logits_BV = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(1000, -1)
    draws_B = torch.tensor(np.random.default_rng(3).random(1000))
    for sampling in (replace(PLAIN, top_p=0.75), replace(PLAIN, top_k=2)):
        tokens_B, logprobs_B = sample(logits_BV, draws_B, sampling)
        assert set(tokens_B.tolist()) == {0, 1}
        assert (tokens_B == 0).double().mean() == pytest.approx(0.625, abs=0.05)
        torch.testing.assert_close(logprobs_B, logits_BV.gather(1, tokens_B[:, None])[:, 0])


@pytest.mark.parametrize("spread", [0.3, 3.0, 8.0], ids=["flat", "mixed", "peaked"])
def test_a_cut_draw_from_a_large_vocabulary_is_that_of_the_whole_sort(spread: float) -> None:
    torch.manual_seed(0)
    logits_BV = spread * torch.randn(200, 2000)
    draws_B = torch.tensor(np.random.default_rng(3).random(200))
    cut = replace(PLAIN, top_p=0.9)
    drawn_B, _ = sample(logits_BV, draws_B, cut)
    most_BV, tokens_BV = logits_BV.softmax(-1).sort(dim=-1, descending=True)
    kept_BV = most_BV.masked_fill(most_BV.cumsum(-1) - most_BV >= cut.top_p, 0)
    shares_BV = torch.zeros_like(kept_BV).scatter(1, tokens_BV, kept_BV).double()
    sums_BV = shares_BV.cumsum(-1)
    for token, draw, sums_V in zip(drawn_B, draws_B, sums_BV, strict=True):
        before = sums_V[token - 1] if token else 0.0
        at = draw * sums_V[-1]
        assert before - 1e-6 <= at <= sums_V[token] + 1e-6


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits_BV = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, -1)
    draws_B = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample(logits_BV, draws_B, PLAIN)[0].tolist() == [1, 3, 3]


def test_new_weights_change_every_layer_and_nothing_is_left_of_the_old(
    tokenizer: Tokenizer,
) -> None:
    old, new = random_model(), random_model(seed=1)
    engine = engine_of(old, tokenizer)
    requests = requests_of(prompts(4))
    before = engine.generate(requests, PLAIN)
    engine.load_weights(new.named_parameters())
    after = engine.generate(requests, PLAIN)
    assert before != after
    assert after == engine_of(new, tokenizer).generate(requests, PLAIN)


def test_the_engine_keeps_its_weights_while_the_model_trains(tokenizer: Tokenizer) -> None:
    model = random_model()
    engine = engine_of(model, tokenizer)
    requests = requests_of(prompts(3))
    before = engine.generate(requests, PLAIN)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    assert engine.generate(requests, PLAIN) == before


def test_weights_of_another_model_are_refused(tokenizer: Tokenizer) -> None:
    engine = engine_of(random_model(), tokenizer)
    with pytest.raises(ValueError, match="no weight"):
        engine.load_weights([("model.layers.9.mlp.up_proj.weight", torch.zeros(48, 32))])
    with pytest.raises(ValueError, match="expected"):
        engine.load_weights([("model.layers.0.mlp.up_proj.weight", torch.zeros(32, 48))])


def test_bfloat16_is_near_float32(tokenizer: Tokenizer) -> None:
    model = random_model()
    engine = TorchEngine(model, tokenizer, batch_tokens=4096, precision="bfloat16")
    requests = requests_of(prompts(6))
    for request, reply in zip(requests, engine.generate(requests, PLAIN), strict=True):
        expected = logprobs_by_forward(model, request, reply)
        assert (torch.tensor(reply.logprobs) - expected).abs().mean() < 0.1


# -- rollouts ------------------------------------------------------------------------------


class Talker:
    """Asks a few times, each with the last reply in it, thinking for a random while."""

    def __init__(self, turns: int, slowness: random.Random | None) -> None:
        self.turns = turns
        self.slowness = slowness

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        said = problem.question
        for _ in range(self.turns):
            if self.slowness is not None:
                await asyncio.sleep(self.slowness.uniform(0, 0.01))
            said = (await chat([Message("user", said)], max_tokens=6, tag="talk")).reply
        return Answer(said, None)


class Recorder(TorchEngine):
    """Notes what each batch held."""

    batches: list[list[Request]]

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        self.batches.append(list(requests))
        return super().generate(requests, sampling)


@pytest.fixture(scope="module")
def recorder(tokenizer: Tokenizer) -> Recorder:
    model = random_model(window=64)
    model.resize_token_embeddings(len(tokenizer._spec["model"]["vocab"]) + 3)
    engine = Recorder(model, tokenizer, batch_tokens=512, precision="float32")
    engine.batches = []
    return engine


def jobs(slowness: random.Random | None, turns: Iterable[int] = (3, 1, 4, 2)) -> list[Job]:
    return [
        Job(
            Sample(f"s{i}", "talk", i, Problem(Context(["x"], ""), "ab" * (i + 1)), (), "any"),
            Talker(count, slowness),
            (11, i),
        )
        for i, count in enumerate(turns)
    ]


def timeless(ends: Sequence[Trajectory]) -> list[Trajectory]:
    return [
        replace(end, seconds=0.0, turns=tuple(replace(turn, seconds=0.0) for turn in end.turns))
        for end in ends
    ]


async def test_lockstep_makes_the_same_batches_whatever_the_timing(recorder: Recorder) -> None:
    recorder.batches = []
    first = timeless(await run_rollouts(recorder, jobs(None), PLAIN))
    batches = recorder.batches
    assert [len(batch) for batch in batches] == [4, 3, 2, 1]
    for seed in range(3):
        recorder.batches = []
        again = timeless(await run_rollouts(recorder, jobs(random.Random(seed)), PLAIN))
        assert again == first
        assert recorder.batches == batches


async def test_a_turn_carries_what_training_needs(recorder: Recorder) -> None:
    recorder.batches = []
    (end,) = await run_rollouts(recorder, jobs(None, [2]), PLAIN)
    for index, turn in enumerate(end.turns):
        request = recorder.batches[index][0]
        assert turn.prompt_ids == request.prompt_ids
        assert request.seed == (11, 0, index)
        assert turn.reply_ids is not None
        assert turn.logprobs is not None
        assert turn.completion_tokens == len(turn.reply_ids) == len(turn.logprobs)
        assert turn.reply == recorder.tokenizer.decode(turn.reply_ids)


async def test_a_prompt_without_room_fails_its_own_rollout_only(recorder: Recorder) -> None:
    both = jobs(None, [1, 1])
    long = replace(both[0].sample, problem=Problem(Context(["x"], ""), "ab" * 100))
    ends = await run_rollouts(recorder, [replace(both[0], sample=long), both[1]], PLAIN)
    assert ends[0].failure is not None
    assert ends[0].failure.kind == "prompt_too_long"
    assert ends[1].failure is None


async def test_a_budget_beyond_the_window_is_cut(recorder: Recorder) -> None:
    recorder.batches = []
    (job,) = jobs(None, [1])
    long = replace(job.sample, problem=Problem(Context(["x"], ""), "ab" * 20))
    await run_rollouts(recorder, [replace(job, sample=long)], PLAIN)
    ((request,),) = recorder.batches
    assert request.max_tokens == min(6, 64 - len(request.prompt_ids))


async def test_a_broken_engine_stops_the_rollouts(recorder: Recorder) -> None:
    with pytest.raises(UsageError, match="repetition"):
        await run_rollouts(recorder, jobs(None), replace(PLAIN, repetition_penalty=2.0))


class Lost:
    """A method whose server is gone."""

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        raise ServerDied("gone")


async def test_a_fatal_failure_of_one_rollout_stops_the_others(recorder: Recorder) -> None:
    recorder.batches = []
    first, *others = jobs(None)
    with pytest.raises(ServerDied):
        await run_rollouts(recorder, [replace(first, method=Lost()), *others], PLAIN)
    assert recorder.batches == []
