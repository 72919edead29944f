"""Map and reduce: notes of each chunk on its own, then notes of the notes, until they fit.

    notes = [ask(NOTES with question, chunk) for chunk in context]
    while notes do not fit:  notes = [ask(MERGE with question, some notes), ...]
    answer = ask(ANSWER with question, notes)

Where a memory agent carries one memory from chunk to chunk, here no turn knows what another has
read: a question whose facts hang together across chunks must be put together out of notes. The
tree of summaries is that of Wu et al. (2021, "Recursively Summarizing Books with Human Feedback",
arXiv:2109.10862), with the question in every turn, as there is one; theirs also shows each turn
the summaries before it, which is left out here.

Notes are put together in reading order, as many as a chunk has tokens for. A chunk that holds
nothing of use is answered with NOTHING, and leaves no note.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.answers import after_think, answered
from core.errors import UsageError
from core.rollout import in_thread
from core.tokens import Tokenizer
from core.types import Answer, AnswerForm, Chat, Message, Problem

NOTHING = "Nothing"

NOTES = """You are presented with a problem and a section of an article that may contain the \
answer to the problem. Please read the provided section carefully and write down, in short notes, \
the information in it that helps to answer the problem. If there is none, write only: Nothing

<problem>
{prompt}
</problem>

<section>
{chunk}
</section>

Notes:
"""

MERGE = """You are presented with a problem and notes on several sections of an article, in the \
order of the article. Please put them together into one set of short notes, and keep all the \
information that helps to answer the problem. If there is none, write only: Nothing

<problem>
{prompt}
</problem>

<notes>
{notes}
</notes>

Notes:
"""

_PROBLEM_AND_NOTES = """

<problem>
{prompt}
</problem>

<notes>
{notes}
</notes>

Your answer:
"""

ANSWER = (
    "You are presented with a problem and notes on an article. Please answer the problem based on "
    "the notes and format your response as follows "
    '"Therefore, the answer is (insert answer here)".' + _PROBLEM_AND_NOTES
)

ANSWER_BOXED = (
    "You are presented with a problem and notes on an article. Please answer the problem based on "
    "the notes and put the answer in \\boxed{{}}." + _PROBLEM_AND_NOTES
)

GAP = "\n\n"
"""Between notes."""


@dataclass(frozen=True, slots=True)
class MapReduceSettings:
    """MemAgent's budgets: `chunk_tokens` of a chunk, and of the notes that one turn reads;
    `reply_tokens` of every reply, which is what a note may have."""

    chunk_tokens: int = 5000
    reply_tokens: int = 1024
    answer_form: AnswerForm = "therefore"


@dataclass(frozen=True, slots=True)
class _Note:
    """A note, and its tokens with those of the gap after it."""

    text: str
    tokens: int


class MapReduce:
    """The baseline, for one tokenizer. Stateless: one object serves any number of rollouts.

    `Answer.counts`: `chunks_read`, `notes` (chunks that left one), `merges` (turns that put notes
    together).
    """

    label = "Map-reduce"
    colours = ("#8C510A", "#BF812D", "#DFC27D")
    is_agent = False
    budgets_of = "memagent"
    prompts = (NOTHING, NOTES, MERGE, ANSWER, ANSWER_BOXED, GAP)

    def __init__(self, tokenizer: Tokenizer, settings: MapReduceSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self._gap_tokens = tokenizer.count(GAP)
        most = settings.chunk_tokens // 2 - self._gap_tokens
        if settings.reply_tokens > most:
            raise UsageError(
                f"map_reduce: reply_tokens is {settings.reply_tokens}, expected at most {most}: "
                f"two notes must fit into the {settings.chunk_tokens} chunk_tokens of a turn"
            )

    def most_tokens(self, question: str) -> int:
        """See core/methods.py. Notes have as many tokens as a chunk."""
        prompts = (
            NOTES.format(prompt=question.strip(), chunk=""),
            MERGE.format(prompt=question.strip(), notes=""),
            self._answer_prompt(question, []),
        )
        around = max(len(self.tokenizer.render_chat([Message("user", p)])) for p in prompts)
        return around + self.settings.chunk_tokens + self.settings.reply_tokens

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        """See `core.types.Method`. Turns are asked one after the other: a sweep has other samples
        to fill the server with."""
        chunks_read, notes = await self._mapped(problem, chat)
        counts = {"chunks_read": chunks_read, "notes": len(notes), "merges": 0}
        while sum(note.tokens for note in notes) > self.settings.chunk_tokens:
            groups = list(self._groups(notes))
            counts["merges"] += sum(len(group) > 1 for group in groups)
            notes = [note for group in groups for note in await self._reduced(group, problem, chat)]
        turn = await chat(
            [Message("user", self._answer_prompt(problem.question, notes))],
            max_tokens=self.settings.reply_tokens,
            tag="answer",
        )
        return Answer(*answered(turn.reply, self.settings.answer_form), counts=counts)

    async def _mapped(self, problem: Problem, chat: Chat) -> tuple[int, list[_Note]]:
        """How many chunks there are, and the notes on them."""
        read, notes = 0, []
        chunks = problem.context.chunks(self.tokenizer, self.settings.chunk_tokens)
        async for chunk in in_thread(chunks):
            prompt = NOTES.format(prompt=problem.question.strip(), chunk=chunk.text)
            turn = await chat(
                [Message("user", prompt, [chunk.known])],
                max_tokens=self.settings.reply_tokens,
                tag="notes",
                reads=[chunk.tokens],
            )
            notes += self._noted(turn.reply)
            read += 1
        return read, notes

    async def _reduced(
        self, group: Sequence[_Note], problem: Problem, chat: Chat
    ) -> Sequence[_Note]:
        """The notes of a group as one, or none. A note alone stays as it is."""
        if len(group) == 1:
            return group
        prompt = MERGE.format(prompt=problem.question.strip(), notes=_joined(group))
        budget = self.settings.reply_tokens
        turn = await chat([Message("user", prompt)], max_tokens=budget, tag="merge")
        return self._noted(turn.reply)

    def _noted(self, reply: str) -> list[_Note]:
        """What a reply notes: nothing, or one note of `reply_tokens` at most, which its text may
        exceed where the model did not write it in the tokenizer's own tokens."""
        text = after_think(reply).strip()
        if text.rstrip(".").lower() in ("", NOTHING.lower()):
            return []
        ids, most = self.tokenizer.encode(text), self.settings.reply_tokens
        if len(ids) > most:
            text, ids = self.tokenizer.decode(ids[:most]), ids[:most]
        return [_Note(text, len(ids) + self._gap_tokens)]

    def _groups(self, notes: Sequence[_Note]) -> Iterator[list[_Note]]:
        """The notes in order, as many at a time as `chunk_tokens` hold: two at least, the last
        group aside, so that there are fewer notes each time."""
        group: list[_Note] = []
        for note in notes:
            tokens = sum(one.tokens for one in group) + note.tokens
            if tokens > self.settings.chunk_tokens:
                yield group
                group = []
            group.append(note)
        yield group

    def _answer_prompt(self, question: str, notes: Sequence[_Note]) -> str:
        form = ANSWER if self.settings.answer_form == "therefore" else ANSWER_BOXED
        return form.format(prompt=question.strip(), notes=_joined(notes))


def _joined(notes: Sequence[_Note]) -> str:
    return GAP.join(note.text for note in notes)
