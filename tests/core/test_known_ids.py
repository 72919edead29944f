"""A prompt put together from a chunk's ids has the ids of its text, and costs its ends only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from agents.gru_mem import UPDATE as GRU_UPDATE
from agents.memagent import UPDATE
from baselines.full_context import FullContext, FullContextSettings
from core import tokens
from core.context import Context
from core.cuts import inner
from core.tokens import Tokenizer
from core.types import Known, Message, Problem
from tests.conftest import CHAT_TEMPLATE
from tests.core.test_streaming import HOSTILE, pieces_of_text, separators

SENTENCES = [
    "\n</memory>\n\n<section>\n",
    "\n</section>\n\nUpdated memory:\n",
    "No previous memory",
]

texts = st.lists(
    st.one_of(st.sampled_from([*HOSTILE, *SENTENCES]), st.text(max_size=8)), max_size=10
).map(lambda parts: "".join(parts).encode(errors="replace").decode())


@pytest.fixture(scope="module")
def chatty(any_tokenizer: Tokenizer) -> Tokenizer:
    """Each tokenizer, with a chat template."""
    if any_tokenizer._chat_template is not None:
        return any_tokenizer
    return Tokenizer(any_tokenizer._spec, CHAT_TEMPLATE, any_tokenizer.name)


def changed(tokenizer: Tokenizer, pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    backend = Backend.from_str(json.dumps(tokenizer._spec))
    backend.pre_tokenizer = pre_tokenizer
    return Tokenizer(json.loads(backend.to_str()), CHAT_TEMPLATE, "changed")


@pytest.fixture(scope="module", params=["no rules", "a space in front"])
def uncuttable(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Tokenizer:
    """Tokenizers whose parts' ids are not the whole's."""
    rules = request.param != "no rules"
    level = pre_tokenizers.ByteLevel(add_prefix_space=rules, use_regex=rules)
    return changed(tokenizer, level)


def assert_same_ids(tokenizer: Tokenizer, prompt: str, known: list[Known]) -> None:
    plain = tokenizer.render_chat([Message("user", prompt)])
    assert tokenizer.render_chat([Message("user", prompt, known)]) == plain


@settings(max_examples=50, deadline=None)
@given(
    pieces=pieces_of_text,
    separator=separators,
    size=st.integers(1, 40),
    memory=texts,
    gru=st.booleans(),
)
def test_a_chunks_ids_make_the_prompts_ids(
    chatty: Tokenizer, pieces: list[str], separator: str, size: int, memory: str, gru: bool
) -> None:
    template = GRU_UPDATE if gru else UPDATE
    for chunk in Context(pieces, separator).chunks(chatty, size):
        prompt = template.format(prompt="Who?", memory=memory, chunk=chunk.text)
        assert_same_ids(chatty, prompt, [chunk.known])


@settings(max_examples=40, deadline=None)
@given(pieces=pieces_of_text, before=texts, between=texts, after=texts, size=st.integers(1, 60))
def test_several_known_parts_may_stand_anywhere(
    chatty: Tokenizer, pieces: list[str], before: str, between: str, after: str, size: int
) -> None:
    chunks = list(Context([*pieces, *SENTENCES, *pieces]).chunks(chatty, size))[:3]
    prompt = before + between.join(chunk.text for chunk in chunks) + after
    assert_same_ids(chatty, prompt, [chunk.known for chunk in chunks])


@settings(max_examples=15, deadline=None)
@given(pieces=pieces_of_text, memory=texts, size=st.integers(1, 40))
def test_a_tokenizer_that_cannot_be_cut_encodes_all(
    uncuttable: Tokenizer, pieces: list[str], memory: str, size: int
) -> None:
    assert not uncuttable.splits_at_cuts
    for chunk in Context(pieces).chunks(uncuttable, size):
        prompt = UPDATE.format(prompt="Who?", memory=memory, chunk=chunk.text)
        assert_same_ids(uncuttable, prompt, [chunk.known])


@settings(max_examples=40, deadline=None)
@given(text=texts, other=texts)
def test_ids_of_another_text_are_not_taken(chatty: Tokenizer, text: str, other: str) -> None:
    text, other = f"The end. {text} Is it? Yes", f"The END. {other} It is! No"
    wrong = Known(text, chatty.encode(other))
    part = inner(wrong, chatty._bytes_of_id)
    assert part is None or chatty.decode(part.ids) == text[part.start : part.end]
    assert_same_ids(chatty, f"Read: {text}", [Known("not there at all", [1, 2]), wrong])


LINE = "The grass is green, the sky was blue 12 times. It's naïve – 東京タワー 🙂 «ok»!\n"


@pytest.fixture
def encoded() -> Iterator[list[int]]:
    """The number of characters of each text that is given to a tokenizer."""
    sizes: list[int] = []
    real = tokens._ids

    def counted(backend: Backend, text: str) -> list[int]:
        sizes.append(len(text))
        return real(backend, text)

    with patch.object(tokens, "_ids", counted):
        yield sizes


@pytest.mark.parametrize("size", [97, 500])
def test_a_context_is_encoded_once_in_all(chatty: Tokenizer, size: int, encoded: list[int]) -> None:
    rendered = 0
    for chunk in Context([LINE] * 300).chunks(chatty, size):
        prompt = UPDATE.format(prompt="Who?", memory="A short one.", chunk=chunk.text)
        chatty.render_chat([Message("user", prompt, [chunk.known])])
        rendered += len(prompt)
    assert sum(encoded) < 1.3 * rendered


@settings(max_examples=40, deadline=None)
@given(pieces=pieces_of_text, budget=st.integers(2, 200))
def test_a_prompt_cut_in_the_middle_is_known_on_both_sides(
    chatty: Tokenizer, pieces: list[str], budget: int
) -> None:
    method = FullContext(chatty, FullContextSettings(input_tokens=budget))
    message, _, _ = method._message(Problem(Context(pieces), "Who?"))
    assert_same_ids(chatty, message.content, list(message.known))
