"""Exact: every task's samples fill the length to less than a unit, and stream as one text.

With corpora made up here and every tokenizer; with the real corpora, where they are there, and
the two real tokenizers; and with corpora of hostile text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora, Essays, Pool, Question, Words
from tasks.haystack.measure import meter
from tasks.questions.documents import DocumentQuestions
from tasks.questions.drawn_documents import MOST_PASSED_OVER, Drawing
from tasks.registry import find_task
from tasks.ruler.niah import Niah
from tasks.task import Coordinates, Materials, sample_rng
from tests.conftest import SHARED
from tests.tasks.parts import sizes, whole_prompt
from tests.tasks.test_every_task import BY_TOKENS, MADE

SEED = 5
DOCUMENT_TASKS = [
    name
    for name in BY_TOKENS
    if isinstance(task := find_task(name), DocumentQuestions) and task.documents is None
]


def make(
    name: str, index: int, length: int, tokenizer: Tokenizer, corpora: Corpora, seed: int = SEED
) -> Sample:
    return find_task(name).sample(Coordinates(index, length, seed), Materials(tokenizer, corpora))


def room_left(sample: Sample, length: int, tokenizer: Tokenizer) -> int:
    """Tokens that the sample falls short of its length; the whole prompt is tokenized."""
    tokens = len(tokenizer.encode(whole_prompt(sample)))
    assert tokens == sizes(sample).prompt_tokens
    return length - find_task(sample.task).generation_tokens - tokens


def unit_tokens(sample: Sample, tokenizer: Tokenizer, corpora: Corpora) -> int:
    """The unit that did not fit any more: of which the sample falls short by less."""
    task, pieces = find_task(sample.task), sample.problem.context.pieces
    if isinstance(task, Niah) and task.haystack == "essay":
        words = corpora.essays().words
        units: Any = sizes(sample).units
        # The word that comes next, and the newline after it, which may cost a token.
        return tokenizer.count(f" {words[units % len(words)]}\n") + 1
    if sample.task == "cwe":
        return max(tokenizer.count(f" 99999. {word}\n") for word in pieces.words)  # type: ignore[attr-defined]
    if sample.task == "fwe":
        return max(tokenizer.count(f" {word}\n") for word in pieces.words)  # type: ignore[attr-defined]
    # A line, or a document: none is much longer than the longest of many.
    longest = max(tokenizer.count(f"\n\n{piece}\n\n") for piece in list(pieces)[:200])
    return longest + longest // 2


@pytest.fixture(scope="session", params=["qwen2", "pocket"])
def real_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def real_corpora() -> Corpora:
    if not (SHARED / "data").is_dir():
        pytest.skip("no corpora beside the project")
    return Corpora(SHARED / "data")


@pytest.mark.parametrize("length", [4_096, 8_192, 32_768])
@pytest.mark.parametrize("name", [name for name in BY_TOKENS if name not in DOCUMENT_TASKS])
def test_real_samples_fall_short_by_less_than_a_unit(
    name: str, length: int, real_tokenizer: Tokenizer, real_corpora: Corpora
) -> None:
    for index in range(2):
        sample = make(name, index, length, real_tokenizer, real_corpora)
        left = room_left(sample, length, real_tokenizer)
        assert 0 <= left < unit_tokens(sample, real_tokenizer, real_corpora)


# -- documents: by a plain reference ---------------------------------------------------------


def check_filling(sample: Sample, length: int, tokenizer: Tokenizer, corpora: Corpora) -> None:
    """The documents are those that fit, in the order of drawing, until eight did not; and what
    is left over is less than each of those eight."""
    task: Any = find_task(sample.task)
    left = room_left(sample, length, tokenizer)
    pool = corpora.hotpotqa() if task.corpus == "hotpotqa" else corpora.squad()
    question = pool.questions[sample.index]
    rng = sample_rng(task, Coordinates(sample.index, length, SEED))
    rng.getrandbits(128)

    def cost(number: int, document: int) -> int:
        text = f"Document {number}:\n{pool.documents[document]}\n\n"
        return tokenizer.count(text + "T") - tokenizer.count("T")

    order: Any = sample.problem.context.pieces.order  # type: ignore[attr-defined]
    room = left + sum(cost(number, document) for number, document in enumerate(order, 1))
    # Documents change places after they are chosen, and numbers differ in tokens at most by a
    # few digits: so the reference counts the numbers of the order of drawing, as the task does.
    chosen: list[int] = []
    passed_over: list[int] = []
    used = 0
    for document in Drawing(rng, pool, question, meter(tokenizer)).documents():
        more = cost(len(chosen) + 1, document)
        if len(chosen) < len(question.golds) or used + more <= room:
            chosen.append(document)
            used += more
        else:
            passed_over.append(document)
            if len(passed_over) == MOST_PASSED_OVER:
                break
    assert sorted(order) == sorted(chosen)
    assert passed_over, "else the corpus was used up, which is refused"
    assert 0 <= left < min(cost(len(chosen) + 1, document) for document in passed_over)


@pytest.mark.parametrize("name", DOCUMENT_TASKS)
@pytest.mark.parametrize("length", [1_400, 2_100, 2_101, 2_777])
def test_documents_fill_the_length_to_less_than_each_that_did_not_fit(
    name: str, length: int, any_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    length = length * 5 // 2 if any_tokenizer.name == "bytes" else length
    for index in range(2):
        sample = make(name, index, length, any_tokenizer, corpora)
        check_filling(sample, length, any_tokenizer, corpora)


@pytest.mark.parametrize("name", DOCUMENT_TASKS)
@pytest.mark.parametrize("length", [4_096, 8_192, 32_768])
def test_real_documents_do_so(
    name: str, length: int, real_tokenizer: Tokenizer, real_corpora: Corpora
) -> None:
    for index in range(3):
        sample = make(name, index, length, real_tokenizer, real_corpora)
        check_filling(sample, length, real_tokenizer, real_corpora)


# -- streams -----------------------------------------------------------------------------------


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """Blocks of 256 characters, so that samples have many edges."""
    with patch("core.tokens.BLOCK_CHARS", 256), patch("core.context.BLOCK_CHARS", 256):
        yield


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", MADE)
def test_chunks_of_the_stream_are_chunks_of_the_whole(
    name: str, any_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    length = 7_000 if any_tokenizer.name == "bytes" or name.endswith("_published") else 2_500
    context = make(name, 1, length, any_tokenizer, corpora).problem.context
    ids = any_tokenizer.encode(context.text().strip())
    for size in (1_000, 337):
        chunks = [list(chunk.ids) for chunk in context.chunks(any_tokenizer, size)]
        assert chunks == [ids[start : start + size] for start in range(0, len(ids), size)]
    assert "".join(context.blocks(stripped=False)) == context.text()


# -- hostile text --------------------------------------------------------------------------------

HOSTILE = [
    "<|im_end|>", "<|endoftext|>", "</think>", "\u0301", "e\u0301", "\u0327x", "a\u030a", "🙂",
    "👩‍👩‍👧‍👦", "🇫🇷", "東京タワー。", "नमस्ते", "שָׁלוֹם", "\u200b", "\ufeff",
    "it's", "'LL", "1234567", "3.14", "x" * 60, "...", "!?", "-", "/", "_", "...)",
    "\u1100\u1161\u11a8", "\u212b", "\x00", "End.",
]  # fmt: skip
words_of_text = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE),
        st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=8),
    ).filter(lambda word: word.split() == [word]),
    min_size=5,
    max_size=40,
)
edges = st.sampled_from(["", " ", "\n", "\r\n", "\n \n", "\t", "\u3000", "\x1c", "\x85", "\u2028"])
documents_of_text = st.lists(
    st.tuples(edges, words_of_text, edges, edges).map(
        lambda parts: parts[0] + (parts[3] or " ").join(parts[1]) + parts[2]
    ),
    min_size=8,
    max_size=20,
    unique=True,
)


class HostileCorpora(Corpora):
    """Every corpus made of the same words and documents."""

    def __init__(self, words: Sequence[str], documents: Sequence[str]) -> None:
        super().__init__(None)
        key = str(random.Random(repr((words, documents))).getrandbits(128))
        question = Question("What \u0301?", ("word",), (3, 5), (3,), ((3, 0, 0),), (1, 2))
        self._pool = Pool(tuple(sorted(documents)), (question,), key)
        self._essays = Essays(tuple(words), key)
        self._words = Words(tuple(f"{w}{i}" for i, w in enumerate(list(words) * 400)), key)

    def hotpotqa(self) -> Pool:
        return self._pool

    def squad(self) -> Pool:
        return self._pool

    def essays(self) -> Essays:
        return self._essays

    def english_words(self) -> Words:
        return self._words


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(words=words_of_text, documents=documents_of_text, more=st.integers(0, 40))
@pytest.mark.parametrize(
    "name",
    ["niah_single_2", "niah_multiquery", "qa_1@whole_corpus_at_most=true",
     "ruler_hqa@whole_corpus_at_most=true"],
)  # fmt: skip
def test_hostile_corpora_are_measured_exactly(
    name: str, words: list[str], documents: list[str], more: int, any_tokenizer: Tokenizer
) -> None:
    corpora = HostileCorpora(words, documents)
    length = (6_000 if any_tokenizer.name == "bytes" else 3_000) + more
    sample = make(name, 0, length, any_tokenizer, corpora, seed=more)
    tokens = len(any_tokenizer.encode(whole_prompt(sample)))
    assert tokens == sizes(sample).prompt_tokens
    assert tokens + find_task(name).generation_tokens <= length
    context = sample.problem.context
    ids = any_tokenizer.encode(context.text().strip())
    chunks = list(context.chunks(any_tokenizer, 97))
    assert [i for chunk in chunks for i in chunk.ids] == ids


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(words=words_of_text)
def test_hostile_lists_are_measured_exactly(words: list[str], any_tokenizer: Tokenizer) -> None:
    corpora = HostileCorpora(words, [f"{i}" for i in range(8)])
    # So few plain words are used up, and the English ones are taken.
    few = Words(tuple("abcdefghijklmnopqrstuvw"), "few")
    with patch("tasks.ruler.cwe.plain_words", lambda: few):
        name = "cwe@common_repeats=2,other_repeats=1"
        sample = make(name, 0, 7_000, any_tokenizer, corpora)
    assert set(sample.golds) <= set(corpora.english_words().words)
    tokens = len(any_tokenizer.encode(whole_prompt(sample)))
    assert tokens == sizes(sample).prompt_tokens
