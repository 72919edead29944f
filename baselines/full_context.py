"""The long-context baseline: the whole haystack in one message (PROTOCOL 1.3).

The rendered prompt is cut in the middle to the model's input budget: the first half and the
last half of the budget stay, so the instruction in front and the question behind survive.
Published budgets: 120,000 tokens in and 10,000 out for 128K models, 990,000 and 10,000 for
1M models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.answers import answered
from core.context import keep_ends
from core.rollout import read_in_thread
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Chat, Known, Message, Problem, TokenSpan

BEFORE = """Please read the following text and answer the question below.

<text>
"""

THEREFORE = """
</text>

{question}

Format your response as follows: "Therefore, the answer is (insert answer here)\""""

# The published code doubles the braces by mistake; `strict` writes them once.
BOXED_PUBLISHED = "\n</text>\n\n{question}\n\nPut the answer in \\boxed{{{{}}}}."
BOXED = "\n</text>\n\n{question}\n\nPut the answer in \\boxed{{}}."


@dataclass(frozen=True, slots=True)
class FullContextSettings:
    """Budgets in tokens: `input_tokens` for the rendered prompt, `output_tokens` for the reply."""

    input_tokens: int = 120_000
    output_tokens: int = 10_000
    answer_form: AnswerForm = "therefore"
    doubled_braces: bool = True


class FullContext:
    """The baseline, for one tokenizer. Stateless: one object serves any number of rollouts."""

    label = "Full context"
    colours = ("#D55E00", "#E69F00", "#882255", "#CC79A7", "#661100", "#999933")
    is_agent = False
    prompts = (BEFORE, THEREFORE, BOXED_PUBLISHED, BOXED)

    def __init__(self, tokenizer: Tokenizer, settings: FullContextSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings

    def most_tokens(self, question: str) -> int:
        """See core/methods.py. The input budget is in tokens of plain text; the server reads the
        fixed texts as its chat template renders them."""
        after = self._after().format(question=question.strip())
        context = self.settings.input_tokens - self.tokenizer.count(BEFORE)
        context = max(context - self.tokenizer.count(after), 0)
        around = len(self.tokenizer.render_chat([Message("user", BEFORE + after)]))
        return around + context + self.settings.output_tokens

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        """See `core.types.Method`."""
        message, reads, dropped = await read_in_thread(self._message, problem)
        turn = await chat(
            [message],
            max_tokens=self.settings.output_tokens,
            tag="answer",
            reads=reads,
        )
        return Answer(*answered(turn.reply, self.settings.answer_form), dropped)

    def _message(self, problem: Problem) -> tuple[Message, list[TokenSpan], int]:
        """The prompt within the input budget, the tokens of the context that are in it,
        and the number of tokens cut."""
        ids = self.tokenizer.stream(self._texts(problem))
        head, tail, dropped = keep_ends(ids, self.settings.input_tokens)
        # To a token: the newline after the context may be one with the context's last character.
        before = self.tokenizer.count(BEFORE)
        after = self.tokenizer.count(self._after().format(question=problem.question.strip()))
        context = len(head) + len(tail) + dropped - before - after
        if not dropped:
            text = "".join(self._texts(problem))
            return Message("user", text, [Known(text, head)]), [TokenSpan(0, context)], 0
        reads = [TokenSpan(0, len(head) - before), TokenSpan(context + after - len(tail), context)]
        reads = [span for span in reads if span.start < span.end]
        known = [Known(self.tokenizer.decode(ids), ids) for ids in (head, tail)]
        return Message("user", "".join(part.text for part in known), known), reads, dropped

    def _texts(self, problem: Problem) -> Iterator[str]:
        yield BEFORE
        yield from problem.context.blocks()
        yield self._after().format(question=problem.question.strip())

    def _after(self) -> str:
        if self.settings.answer_form == "therefore":
            return THEREFORE
        return BOXED_PUBLISHED if self.settings.doubled_braces else BOXED
