"""Tokenizers for the tests of exact streaming."""

from __future__ import annotations

import pytest

from core.tokens import Tokenizer
from tests.core.tokenizers import gpt2_like as gpt2_like
from tests.core.tokenizers import llama3_like as llama3_like
from tests.core.tokenizers import pocket as pocket
from tests.core.tokenizers import qwen2 as qwen2
from tests.tasks.conftest import byte_tokenizer as byte_tokenizer


@pytest.fixture(scope="session", params=["gpt2_like", "llama3_like", "qwen2", "pocket"])
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each tokenizer in turn: two trained by the tests, Qwen2's, the pocket model's."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found
