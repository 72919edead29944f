"""Full context's prompt around a part of the context: what the baselines share that choose it."""

from __future__ import annotations

from dataclasses import dataclass

from baselines.full_context import BEFORE, BOXED, THEREFORE
from core.errors import PromptTooLong
from core.tokens import Tokenizer
from core.types import AnswerForm, Message

PROMPTS = (BEFORE, THEREFORE, BOXED)


@dataclass(frozen=True, slots=True)
class Window:
    """Budgets in tokens: `input_tokens` for the prompt, `output_tokens` for the reply."""

    tokenizer: Tokenizer
    input_tokens: int
    output_tokens: int
    answer_form: AnswerForm

    def around(self, question: str) -> tuple[str, str]:
        """What stands before the part, and after it."""
        form = THEREFORE if self.answer_form == "therefore" else BOXED
        return BEFORE, form.format(question=question.strip())

    def room(self, question: str) -> int:
        """Tokens of the context that fit beside the fixed texts and the question.

        Raises:
            PromptTooLong: none does.
        """
        taken = sum(map(self.tokenizer.count, self.around(question)))
        if taken >= self.input_tokens:
            raise PromptTooLong(
                f"the prompt without any context has {taken} tokens, input_tokens is "
                f"{self.input_tokens}. Give more input_tokens, or a shorter question."
            )
        return self.input_tokens - taken

    def most_tokens(self, question: str) -> int:
        """See core/methods.py. The input budget is in tokens of plain text; the server reads the
        fixed texts as its chat template renders them."""
        around = self.tokenizer.render_chat([Message("user", "".join(self.around(question)))])
        return len(around) + self.room(question) + self.output_tokens
