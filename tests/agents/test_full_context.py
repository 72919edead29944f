"""The full-context baseline asks once, with the middle cut to the budget."""

from __future__ import annotations

import hashlib

import pytest

from baselines.full_context import (
    BEFORE,
    BOXED,
    BOXED_PUBLISHED,
    THEREFORE,
    FullContext,
    FullContextSettings,
)
from core.context import Context
from core.tokens import Tokenizer
from core.types import Problem
from tests.conftest import SHARED, ScriptedChat

PINNED = "56d3e409df37f9ac"


def test_prompt_is_the_protocol_byte_for_byte() -> None:
    text = BEFORE + "{context}" + THEREFORE
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == PINNED


@pytest.mark.skipif(not (SHARED / "PROTOCOL.md").is_file(), reason="no ../shared")
def test_prompt_stands_in_the_protocol() -> None:
    protocol = (SHARED / "PROTOCOL.md").read_text(encoding="utf-8")
    assert BEFORE + "{context}" + THEREFORE in protocol


def test_published_boxed_form_keeps_the_doubled_braces() -> None:
    assert BOXED_PUBLISHED.format(question="q").endswith(r"in \boxed{{}}.")
    assert BOXED.format(question="q").endswith(r"in \boxed{}.")


async def test_a_short_context_is_sent_whole(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(lambda *_: "Therefore, the answer is Paris.")
    baseline = FullContext(tokenizer, FullContextSettings(output_tokens=9))
    answer = await baseline.answer(Problem(Context(["a", "b"]), " q "), chat)
    assert chat.asked == [(BEFORE + "a\nb" + THEREFORE.format(question="q"), "answer", 9)]
    assert (answer.prediction, answer.truncated_tokens) == ("Paris", 0)


async def test_a_long_prompt_keeps_its_first_and_last_half(tokenizer: Tokenizer) -> None:
    context = Context([f"line {i}" for i in range(400)])
    whole = BEFORE + context.text() + THEREFORE.format(question="q")
    ids = tokenizer.encode(whole)
    chat = ScriptedChat(lambda *_: "x")
    answer = await FullContext(tokenizer, FullContextSettings(input_tokens=301)).answer(
        Problem(context, "q"), chat
    )
    assert chat.asked[0][0] == tokenizer.decode(ids[:150]) + tokenizer.decode(ids[-150:])
    assert answer.truncated_tokens == len(ids) - 300
    assert chat.asked[0][0].endswith('(insert answer here)"')
