"""Retrieval takes the chunks that BM25 ranks first, in reading order, as many as the window has
room for."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.full_context import BEFORE, BOXED, THEREFORE
from baselines.retrieval import GAP, Retrieval, RetrievalSettings, bm25, words
from core.context import Context
from core.errors import PromptTooLong, UsageError
from core.tokens import Tokenizer
from core.types import Answer, Problem, TokenSpan
from tests.conftest import ScriptedChat

NAMES = ("apple", "pear", "plum", "fig", "the", "of")


def by_hand(
    chunks: Sequence[Sequence[str]], query: Sequence[str], k1: float, b: float
) -> list[float]:
    """BM25 as the formula reads, a chunk and a word at a time."""
    count = len(chunks)
    average = sum(len(chunk) for chunk in chunks) / count
    scores = []
    for chunk in chunks:
        score = 0.0
        for word in query:
            holding = sum(word in other for other in chunks)
            often = chunk.count(word)
            idf = math.log(1 + (count - holding + 0.5) / (holding + 0.5))
            score += idf * often / (often + k1 * (1 - b + b * len(chunk) / average)) if often else 0
        scores.append(score)
    return scores


@given(
    st.lists(st.lists(st.sampled_from(NAMES), max_size=12), min_size=1, max_size=8),
    st.lists(st.sampled_from((*NAMES, "nowhere")), max_size=5),
    st.floats(0.1, 3.0),
    st.floats(0.0, 1.0),
)
@settings(deadline=None)  # the first call imports bm25s
def test_scores_are_those_of_the_formula(
    chunks: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    wanted = by_hand(chunks, query, k1, b) if any(chunks) else [0.0] * len(chunks)
    assert bm25(chunks, query, k1, b) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_a_rare_word_weighs_more_than_a_common_one_and_a_short_chunk_more_than_a_long() -> None:
    chunks = [["the", "fig"], ["the", "the"], ["the", "fig", *["plum"] * 9], ["the"]]
    scores = bm25(chunks, ["the", "fig"], 1.5, 0.75)
    assert sorted(range(4), key=lambda i: -scores[i])[:2] == [0, 2]


def test_words_are_lower_case_letters_and_digits() -> None:
    assert words("What's the VALUE of key_7, é?") == [
        "what",
        "s",
        "the",
        "value",
        "of",
        "key_7",
        "é",
    ]


async def answered(
    tokenizer: Tokenizer, context: Context, question: str, **given_settings: object
) -> tuple[str, Answer, tuple[TokenSpan, ...]]:
    """The prompt, the answer and what was read."""
    reads: list[TokenSpan] = []

    class Chat(ScriptedChat):
        async def __call__(self, messages, **rest):  # type: ignore[no-untyped-def]
            reads.extend(rest["reads"])
            return await super().__call__(messages, **rest)

    chat = Chat(lambda *_: "Therefore, the answer is Paris.")
    method = Retrieval(tokenizer, RetrievalSettings(**given_settings))  # type: ignore[arg-type]
    answer = await method.answer(Problem(context, question), chat)
    ((prompt, tag, budget),) = chat.asked
    assert tag == "answer"
    assert budget == method.settings.output_tokens
    return prompt, answer, tuple(reads)


def filler(lines: int) -> list[str]:
    return [f"Nothing to see in row {i}, only grass." for i in range(lines)]


async def test_the_best_chunks_stand_in_reading_order(tokenizer: Tokenizer) -> None:
    pieces = filler(200)
    pieces[150] = "The harbour opened with a zebra."
    pieces[20] = "A zebra slept."
    context = Context(pieces)
    prompt, answer, reads = await answered(
        tokenizer, context, "What did the zebra do at the harbour?", chunk_tokens=40,
        input_tokens=400, output_tokens=9, most_chunks=3,
    )  # fmt: skip
    chunks = [*context.chunks(tokenizer, 40)]
    shown = GAP.join(
        "".join(one.text for one in chunks if span.start <= one.tokens.start < span.end)
        for span in reads
    )
    assert len(reads) == 2  # of three chunks two are neighbours
    assert prompt == BEFORE + shown + THEREFORE.format(
        question="What did the zebra do at the harbour?"
    )
    assert "slept" in shown
    assert "harbour" in shown
    assert list(reads) == sorted(reads, key=lambda span: span.start)
    assert answer.prediction == "Paris"
    assert answer.counts == {"chunks_read": 3}
    assert answer.truncated_tokens == context.count(tokenizer) - 120


async def test_neighbours_join_without_a_seam_and_a_short_context_is_sent_whole(
    tokenizer: Tokenizer,
) -> None:
    context = Context(["The sky is blue."] * 9)
    prompt, answer, reads = await answered(
        tokenizer, context, " What? ", chunk_tokens=11, answer_form="boxed"
    )
    assert prompt == BEFORE + context.text() + BOXED.format(question="What?")
    assert answer.truncated_tokens == 0
    assert reads == (TokenSpan(0, context.count(tokenizer)),)  # what crosses an edge is read


@pytest.mark.parametrize("budget", [180, 200, 201, 202, 203, 400])
async def test_a_prompt_keeps_to_the_budget(tokenizer: Tokenizer, budget: int) -> None:
    context = Context(filler(300))
    prompt, answer, reads = await answered(
        tokenizer, context, "row 7 grass?", chunk_tokens=20, input_tokens=budget
    )
    assert budget - 2 * 20 < tokenizer.count(prompt) <= budget
    read = sum(span.end - span.start for span in reads)
    assert read + answer.truncated_tokens == context.count(tokenizer)


def test_its_largest_turn_is_told(tokenizer: Tokenizer) -> None:
    method = Retrieval(tokenizer, RetrievalSettings(input_tokens=500, output_tokens=50))
    assert 550 < method.most_tokens("What?") < 570


async def test_a_question_that_leaves_no_room_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(PromptTooLong, match=r"without any context has .* input_tokens is 99"):
        await answered(tokenizer, Context(["a"]), "why?", chunk_tokens=20, input_tokens=99)


def test_a_chunk_larger_than_the_window_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="chunk_tokens is 300, expected less than input_tokens"):
        Retrieval(tokenizer, RetrievalSettings(input_tokens=300))


class Lines(Sequence[str]):
    """A haystack that is made as it is read."""

    def __len__(self) -> int:
        return 60_000

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return f"Line {place} says that nothing happened to the green tree today."

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))


@pytest.mark.slow
async def test_a_long_context_is_not_held(tokenizer: Tokenizer) -> None:
    context = Context(Lines())
    size = context.characters()
    tracemalloc.start()
    try:
        prompt, _, _ = await answered(
            tokenizer, context, "What happened in line 34567?", input_tokens=2000
        )
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "Line 34567 says" in prompt
    assert held < size  # a copy of its text would be as large, its tokens many times that
