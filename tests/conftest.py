"""Pieces that many tests use: a small real tokenizer, scripted chats, the shared data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers
from xdist.scheduler import LoadScopeScheduling

from core.context import Context
from core.rollout import told
from core.tokens import Tokenizer
from core.types import Message, Problem, Sample, TokenSpan, Turn
from serving.catalogue import ModelEntry, find_model
from serving.pool import Pool
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Workers take whole files; all `test_real_` files are one worker's, so that the real pool
    starts once and no two of them run side by side."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "real" if "/test_real_" in f"/{file}" else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with a ChatML template, trained here on a few sentences."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(
        ["The grass is green. The sky is blue. One of the special magic numbers"] * 4, trainer
    )
    return Tokenizer(json.loads(backend.to_str()), CHAT_TEMPLATE, "test")


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    """The pocket model if its checkpoint is there, else one of random weights."""
    entry = find_model("pocket-base")
    if any((ROOT / entry.source).glob("*.safetensors")):
        return entry
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder, window_tokens=entry.window_tokens)
    return entry.model_copy(update={"source": f"./{os.path.relpath(folder, ROOT)}"})


@pytest.fixture(scope="session")
def pool(served_model: ModelEntry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A real pool, started once. Mark tests that use it `pool`."""
    with Pool(served_model, log_dir=tmp_path_factory.mktemp("pool")) as started:
        yield started


class ScriptedChat:
    """Answers with what `reply` makes of (messages, tag), and keeps what it was asked."""

    def __init__(self, reply: Callable[[str, str], str]) -> None:
        self.reply = reply
        self.asked: list[tuple[str, str, int]] = []

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        tag: str,
        reads: Sequence[TokenSpan] = (),
        memory: Callable[[str], str] | None = None,
    ) -> Turn:
        content = messages[-1].content
        self.asked.append((content, tag, max_tokens))
        reply = self.reply(content, tag)
        turn = Turn(tag, tuple(messages), reply, "stop", len(content), len(reply), 0.0)
        return told(turn, reads, memory)


def make_sample(pieces: Sequence[str], question: str = "What?", index: int = 0) -> Sample:
    """A sample of given pieces, golds ('gold',)."""
    problem = Problem(Context(pieces), question)
    return Sample(f"id{index}", "t", index, problem, ("gold",), "any")
