"""MemAgent (arXiv:2507.02259, section 3): read a haystack in chunks, keep a text memory.

The state is one text. Each chunk is one conversation of its own: the model sees the
question, the memory and the chunk, and its whole reply becomes the memory. A last
conversation answers from the memory alone, so cost is linear in length and the window
never grows.

    memory = "No previous memory"
    for chunk in context:  memory = ask(UPDATE with question, memory, chunk)
    answer = ask(ANSWER with question, memory)

The strings are protocol (PROTOCOL 1.1), pinned by tests/agents/test_memagent.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.answers import after_think, answered
from core.context import Context, keep_ends
from core.rollout import in_thread, read_in_thread
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Chat, Message, Problem, TokenSpan

NO_MEMORY = "No previous memory"

UPDATE = """You are presented with a problem, a section of an article that may contain the \
answer to the problem, and a previous memory. Please read the provided section carefully and \
update the memory with the new information that helps to answer the problem. Be sure to \
retain all relevant details from the previous memory while adding any new, useful information.

<problem> 
{prompt}
</problem>

<memory>
{memory}
</memory>

<section>
{chunk}
</section>

Updated memory:
"""  # noqa: W291

_PROBLEM_AND_MEMORY = """

<problem> 
{prompt}
</problem>

<memory>
{memory}
</memory>

Your answer:
"""  # noqa: W291

ANSWER = (
    "You are presented with a problem and a previous memory. Please answer the problem based on "
    "the previous memory and format your response as follows "
    '"Therefore, the answer is (insert answer here)".' + _PROBLEM_AND_MEMORY
)

ANSWER_BOXED = (
    "You are presented with a problem and a previous memory. Please answer the problem based on "
    "the previous memory and put the answer in \\boxed{{}}." + _PROBLEM_AND_MEMORY
)


@dataclass(frozen=True, slots=True)
class MemAgentSettings:
    """Published: 5,000-token chunks, 1,024 reply tokens on every turn, no context cap.

    `reply_tokens` bounds the memory too: a memory is a reply. `context_cap` in tokens cuts
    the middle of a longer context away.
    """

    chunk_tokens: int = 5000
    reply_tokens: int = 1024
    context_cap: int | None = None
    answer_form: AnswerForm = "therefore"


class MemAgent:
    """The workflow, for one tokenizer. Stateless: one object serves any number of rollouts."""

    label = "MemAgent"
    colours = ("#0072B2", "#56B4E9", "#332288", "#44AA99")
    prompts = (NO_MEMORY, UPDATE, ANSWER, ANSWER_BOXED)

    def __init__(self, tokenizer: Tokenizer, settings: MemAgentSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings

    def most_tokens(self, question: str) -> int:
        """See core/methods.py. A memory is a reply, so a turn holds two of them."""
        prompt = UPDATE.format(prompt=question.strip(), memory="", chunk="")
        around = len(self.tokenizer.render_chat([Message("user", prompt)]))
        return around + self.settings.chunk_tokens + 2 * self.settings.reply_tokens

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        """See `core.types.Method`."""
        question = problem.question.strip()
        budget = self.settings.reply_tokens
        memory = NO_MEMORY
        context, dropped = await read_in_thread(self._capped, problem)
        chunks = context.chunks(self.tokenizer, self.settings.chunk_tokens)
        async for chunk in in_thread(chunks):
            prompt = UPDATE.format(prompt=question, memory=memory, chunk=chunk.text)
            turn = await chat(
                [Message("user", prompt, [chunk.known])],
                max_tokens=budget,
                tag="memory",
                reads=self._reads(chunk.tokens, dropped),
                memory=after_think,
            )
            memory = after_think(turn.reply)
        template = ANSWER if self.settings.answer_form == "therefore" else ANSWER_BOXED
        prompt = template.format(prompt=question, memory=memory)
        turn = await chat([Message("user", prompt)], max_tokens=budget, tag="answer")
        return Answer(*answered(turn.reply, self.settings.answer_form), dropped)

    def _capped(self, problem: Problem) -> tuple[Context, int]:
        """The context with its middle cut to the cap, and the number of tokens cut."""
        context, cap = problem.context, self.settings.context_cap
        if cap is None:
            return context, 0
        head, tail, dropped = keep_ends(context.tokens(self.tokenizer), cap)
        if not dropped:
            return context, 0
        return Context([self.tokenizer.decode(head), self.tokenizer.decode(tail)], ""), dropped

    def _reads(self, chunk: TokenSpan, dropped: int) -> list[TokenSpan]:
        """Where a chunk stands in the whole context, of which the cap dropped so many tokens."""
        kept = (self.settings.context_cap or 0) // 2
        if not dropped or chunk.end <= kept:
            return [chunk]
        after = TokenSpan(max(chunk.start, kept) + dropped, chunk.end + dropped)
        return [after] if chunk.start >= kept else [TokenSpan(chunk.start, kept), after]
