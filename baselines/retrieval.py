"""Retrieval with BM25: the chunks that share the most telling words with the question, in reading
order, in one window.

The context is cut into chunks of as many tokens, each is scored by BM25 against the question, and
the best go into full context's prompt and budget, as many as fit. Neighbours join without a seam,
others with an empty line between.

BM25 is Robertson and Zaragoza's (2009, doi:10.1561/1500000019) with the inverse document
frequency that Lucene takes, which is never negative, computed by bm25s (Lu 2024, arXiv:2407.03618).
A word is a run of letters, digits and underscores, in lower case; none is left out and none is
stemmed. With N chunks, n of them with the word w, which a chunk of l words (m on average) holds
f times, and summed over the words of the question, repetitions included:

    ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 * (1 - b + b * l / m))

Filling a window with retrieved chunks in front of a long-context model is the comparison of Xu et
al. (2024, arXiv:2310.03025); their chunks have 300 words.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from baselines.window import PROMPTS, Window
from core.answers import answered
from core.context import Chunk
from core.errors import UsageError
from core.rollout import read_in_thread
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Chat, Message, Problem, TokenSpan

GAP = "\n\n"
"""Between chunks that are no neighbours."""

_WORD = re.compile(r"\w+")
_OTHER = 0
"""The number of all words that the question does not have: they only count for a chunk's length."""


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    """Budgets in tokens: `chunk_tokens` of a chunk, `input_tokens` for the prompt, `output_tokens`
    for the reply. `most_chunks` bounds the number of chunks; None fills the window. `k1`, `b`:
    BM25's, how soon repetitions of a word count no more, and how much a chunk's length counts."""

    input_tokens: int = 120_000
    output_tokens: int = 10_000
    chunk_tokens: int = 300
    most_chunks: int | None = None
    k1: float = 1.5
    b: float = 0.75
    answer_form: AnswerForm = "therefore"


class Retrieval:
    """The baseline, for one tokenizer. Stateless: one object serves any number of rollouts.

    The context is read twice as a stream, to score its chunks and to take the best. Of the others
    two bytes a word are held while they are scored, and nothing after. `Answer.counts`:
    `chunks_read`.
    """

    label = "Retrieval"
    colours = ("#AA4499", "#762A83", "#C2A5CF")
    is_agent = False
    budgets_of = "full_context"
    prompts = (*PROMPTS, GAP)

    def __init__(self, tokenizer: Tokenizer, settings: RetrievalSettings) -> None:
        if settings.chunk_tokens >= settings.input_tokens:
            raise UsageError(
                f"retrieval: chunk_tokens is {settings.chunk_tokens}, expected less than "
                f"input_tokens, {settings.input_tokens}: give retrieval@chunk_tokens=N"
            )
        self.tokenizer = tokenizer
        self.settings = settings
        self.window = Window(
            tokenizer, settings.input_tokens, settings.output_tokens, settings.answer_form
        )

    def most_tokens(self, question: str) -> int:
        """See core/methods.py."""
        return self.window.most_tokens(question)

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        """See `core.types.Method`."""
        text, taken, tokens = await read_in_thread(self._prompt, problem)
        read = _spans(taken)
        turn = await chat(
            [Message("user", text)],
            max_tokens=self.settings.output_tokens,
            tag="answer",
            reads=read,
        )
        unread = tokens - sum(span.end - span.start for span in read)
        counts = {"chunks_read": len(taken)}
        return Answer(*answered(turn.reply, self.settings.answer_form), unread, counts)

    def _prompt(self, problem: Problem) -> tuple[str, list[Chunk], int]:
        """The prompt within the input budget, the chunks in it, and the tokens of the context."""
        settings = self.settings
        size, tokens = settings.chunk_tokens, 0

        def each_chunk() -> Iterator[list[str]]:
            nonlocal tokens
            for chunk in problem.context.chunks(self.tokenizer, size):
                tokens = chunk.tokens.end
                yield words(chunk.text)

        scores = bm25(each_chunk(), words(problem.question), settings.k1, settings.b)
        # Equal scores leave the earlier chunk in front.
        ranked = sorted(range(len(scores)), key=lambda number: -scores[number])
        most = self.window.room(problem.question) // size + 1  # the last chunk may be shorter
        best = ranked[: min(most, settings.most_chunks or most)]
        kept = set(best)
        chunks = problem.context.chunks(self.tokenizer, size)
        found = {chunk.index: chunk for chunk in chunks if chunk.index in kept}
        before, after = self.window.around(problem.question)
        while True:
            taken = [found[number] for number in sorted(best)]
            text = before + _joined(taken) + after
            if not best or self.tokenizer.count(text) <= settings.input_tokens:
                break
            best.pop()
        return text, taken, tokens


def words(text: str) -> list[str]:
    """The words that BM25 counts."""
    return _WORD.findall(text.lower())


def bm25(chunks: Iterable[Sequence[str]], query: Sequence[str], k1: float, b: float) -> list[float]:
    """The score of each chunk, given as its words, for the words of a query."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys(query), _OTHER + 1)}
    # A number a word: what scores hang on is how often a chunk has the query's, and its length.
    counted = [array("H", [numbers.get(word, _OTHER) for word in chunk]) for chunk in chunks]
    if not any(counted):
        return [0.0] * len(counted)
    # Imported late: with numba beside it, it takes a second, and only this method needs it.
    import bm25s

    # It logs each index at DEBUG, whatever level the program has set.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    vocabulary = {"": _OTHER, **numbers}
    index.index((counted, vocabulary), create_empty_token=False, show_progress=False)
    scores = index.get_scores_from_ids([numbers[word] for word in query])
    return [float(score) for score in scores]


def _spans(chunks: Iterable[Chunk]) -> list[TokenSpan]:
    """What chunks in reading order cover; a fact across the edge of two neighbours is read."""
    spans: list[TokenSpan] = []
    for chunk in chunks:
        follows = bool(spans) and spans[-1].end == chunk.tokens.start
        start = spans.pop().start if follows else chunk.tokens.start
        spans.append(TokenSpan(start, chunk.tokens.end))
    return spans


def _joined(chunks: Sequence[Chunk]) -> str:
    """Chunks in reading order as one text."""
    parts = [chunk.text for chunk in chunks[:1]]
    for one, following in pairwise(chunks):
        parts += ["" if following.index == one.index + 1 else GAP, following.text]
    return "".join(parts)
