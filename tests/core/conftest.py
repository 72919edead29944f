"""Tokenizers for the tests of exact streaming."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tokens import Tokenizer
from tests.core.tokenizers import LLAMA3, trained

ROOT = Path(__file__).resolve().parents[2]
QWEN2 = ROOT.parent / "shared" / "tokenizers" / "qwen2"
POCKET = ROOT / "checkpoints" / "pocket"


@pytest.fixture(scope="session")
def qwen2() -> Tokenizer:
    if not (QWEN2 / "tokenizer.json").is_file():
        pytest.skip("no Qwen2 tokenizer beside the project")
    return Tokenizer.load(QWEN2)


@pytest.fixture(scope="session")
def pocket() -> Tokenizer:
    if not (POCKET / "tokenizer.json").is_file():
        pytest.skip("no pocket model in checkpoints/")
    return Tokenizer.load(POCKET)


@pytest.fixture(scope="session")
def gpt2_like() -> Tokenizer:
    return trained("gpt2-like")


@pytest.fixture(scope="session")
def llama3_like() -> Tokenizer:
    return trained("llama3-like", LLAMA3)


@pytest.fixture(scope="session", params=["gpt2_like", "llama3_like", "qwen2", "pocket"])
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each tokenizer in turn: two trained by the tests, Qwen2's, the pocket model's."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found
