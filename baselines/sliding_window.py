"""The last window alone: what a model has of a context whose beginning was cut off.

Full context's prompt, with as many tokens of the context's end as its budget holds: truncation
from the left, where full context cuts the middle out (LongBench's way, arXiv:2308.14508). It is
the left truncation of tokenizers (`truncation_side="left"` in transformers) and what stays of a
chat whose oldest turns are dropped; nothing earlier is ever seen. What it answers right says how
much of a task the end of the context gives away.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from baselines.window import PROMPTS, Window
from core.answers import answered
from core.rollout import read_in_thread
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Chat, Known, Message, Problem, TokenSpan


@dataclass(frozen=True, slots=True)
class SlidingWindowSettings:
    """Budgets in tokens: `input_tokens` for the prompt, `output_tokens` for the reply."""

    input_tokens: int = 120_000
    output_tokens: int = 10_000
    answer_form: AnswerForm = "therefore"


class SlidingWindow:
    """The baseline, for one tokenizer. Stateless: one object serves any number of rollouts."""

    label = "Sliding window"
    colours = ("#555555", "#999999", "#BBBBBB")
    is_agent = False
    budgets_of = "full_context"
    prompts = PROMPTS

    def __init__(self, tokenizer: Tokenizer, settings: SlidingWindowSettings) -> None:
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
        ids, tokens = await read_in_thread(self._last, problem)
        text = self.tokenizer.decode(ids)
        before, after = self.window.around(problem.question)
        turn = await chat(
            [Message("user", before + text + after, [Known(text, ids)])],
            max_tokens=self.settings.output_tokens,
            tag="answer",
            reads=[TokenSpan(tokens - len(ids), tokens)],
        )
        return Answer(*answered(turn.reply, self.settings.answer_form), tokens - len(ids))

    def _last(self, problem: Problem) -> tuple[list[int], int]:
        """The last tokens of the context that the budget has room for, and how many it has in
        all. Held is no more than the window and a block."""
        last: deque[int] = deque(maxlen=self.window.room(problem.question))
        tokens = 0
        for ids in problem.context.tokens(self.tokenizer):
            last.extend(ids)
            tokens += len(ids)
        return list(last), tokens
