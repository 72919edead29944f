"""Scores of packed replies against transformers' forward, conversation by conversation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from tests.training.rl.small import flat, groups_of, plain_logprobs, small_model
from training.rl.learner import policy
from training.rl.learner.packing import pack
from training.rl.learner.policy import ATTENTION, score_replies
from training.rl.learner.protocol import Conversation

CONVERSATIONS = flat(groups_of(2))


def scorer(model: Qwen2ForCausalLM) -> Qwen2ForCausalLM:
    model.set_attn_implementation(ATTENTION)
    return model


def scored(
    model: Qwen2ForCausalLM, conversations: list[Conversation], share: bool, **options: object
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies and advantages of all reply tokens, by micro-batch."""
    batches = pack(conversations, budget=120, pad=0, share_prefixes=share).micro_batches
    parts = [
        (*(u[batch.index_N] for u in score_replies(model, batch, **options)), batch.advantages_N)  # type: ignore[arg-type]
        for batch in batches
    ]
    logprobs, entropies, advantages = (torch.cat(column) for column in zip(*parts, strict=True))
    return logprobs, entropies, advantages


def numbered(conversations: list[Conversation]) -> list[Conversation]:
    """Advantages that name the token, so that scores can be put in order."""
    made, start = [], 0
    for one in conversations:
        names = tuple(float(start + k) for k in range(len(one.reply)))
        made.append(Conversation(one.prompt, one.reply, names, one.old_logprobs))
        start += len(one.reply)
    return made


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("key_heads", "tied"), [(4, False), (2, True), (1, False)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_those_of_each_conversation_alone(
    key_heads: int, tied: bool, share: bool, temperature: float
) -> None:
    model = small_model(key_heads=key_heads, tied=tied)
    with torch.no_grad():
        plain = [plain_logprobs(model, one, temperature) for one in CONVERSATIONS]
        logprobs, entropies, names = scored(
            scorer(model), numbered(CONVERSATIONS), share, temperature=temperature
        )
    order = names.argsort()
    torch.testing.assert_close(
        logprobs[order], torch.cat([one[0] for one in plain]), atol=2e-5, rtol=1e-5
    )
    torch.testing.assert_close(
        entropies[order], torch.cat([one[1] for one in plain]), atol=2e-5, rtol=1e-5
    )


def gradients(model: Qwen2ForCausalLM, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.fixture(params=[(4, False), (2, True)], ids=["mha-untied", "gqa-tied"])
def plain_gradients(
    request: pytest.FixtureRequest,
) -> tuple[Qwen2ForCausalLM, dict[str, Tensor]]:
    """A model, and the gradients of sum of advantage times log-probability, one conversation
    at a time."""
    key_heads, tied = request.param
    model = small_model(key_heads=key_heads, tied=tied)
    losses = [
        (torch.tensor(one.advantages) * plain_logprobs(model, one)[0]).sum()
        for one in CONVERSATIONS
    ]
    return model, gradients(model, torch.stack(losses).sum())


@pytest.mark.parametrize(
    ("share", "checkpointing", "slice_tokens"),
    [(False, False, 4096), (True, False, 4096), (True, True, 4096), (True, True, 5)],
)
def test_gradients_are_the_sum_of_each_conversations(
    plain_gradients: tuple[Qwen2ForCausalLM, dict[str, Tensor]],
    share: bool,
    checkpointing: bool,
    slice_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "SLICE", slice_tokens)
    model, expected = plain_gradients
    logprobs, _, advantages = scored(
        scorer(model), CONVERSATIONS, share, gradient_checkpointing=checkpointing
    )
    found = gradients(model, (logprobs * advantages).sum())
    for name, gradient in expected.items():
        size = float(gradient.abs().max())
        torch.testing.assert_close(
            found[name], gradient, atol=1e-4 * size + 1e-6, rtol=1e-3, msg=name
        )


def test_sliced_scores_equal_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = scorer(small_model())
    (batch,) = pack(CONVERSATIONS, budget=10_000, pad=0).micro_batches[:1]
    with torch.no_grad():
        whole = score_replies(model, batch)
        monkeypatch.setattr(policy, "SLICE", 3)
        parts = score_replies(model, batch)
    assert len(whole[0]) > 6
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
