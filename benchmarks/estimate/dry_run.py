"""Turns and tokens of a plan, counted by the methods themselves.

Each method runs as in a sweep, on real samples, with a chat that answers at once: a filler of as
many tokens as a reply is assumed to have. So nothing here knows how a method asks, and a method
from outside is counted like any other. A reply of the whole budget makes every count an upper
bound: real replies are shorter, and so are the memories that they become.

Cells that differ in the model's weights only are counted once; of long cells, one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.methods import make_method
from benchmarks.plan import Plan
from benchmarks.store import Cell
from core.errors import HarnessError
from core.names import base_of
from core.rollout import rollout, run_async, told
from core.tokens import Tokenizer
from core.types import Message, TokenSpan, Turn
from tasks.task import Coordinates, Materials

LOOKED_AT_TOKENS = 100_000
"""Samples of a cell are counted until they make so many tokens, one at least."""

FILLER = " a"
WRAPPED = {"gru_mem": "<check>yes</check><update>{}</update><next>continue</next>"}
"""Methods whose replies have a form that keeps them reading and remembering to the end."""


@dataclass(frozen=True, slots=True)
class Work:
    """Turns and their tokens. `squares`: the sum over turns of the squared tokens, prompt and
    reply, which attention costs. `longest`: tokens of the longest turn."""

    turns: float = 0
    prompt_tokens: float = 0
    reply_tokens: float = 0
    squares: float = 0
    longest: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.turns + other.turns,
            self.prompt_tokens + other.prompt_tokens,
            self.reply_tokens + other.reply_tokens,
            self.squares + other.squares,
            max(self.longest, other.longest),
        )

    def times(self, factor: float) -> Work:
        """As much work so many times."""
        return Work(
            factor * self.turns,
            factor * self.prompt_tokens,
            factor * self.reply_tokens,
            factor * self.squares,
            self.longest,
        )


class CountingChat:
    """Implements `core.types.Chat`: answers with filler, and adds up what it was asked."""

    def __init__(self, tokenizer: Tokenizer, reply: Callable[[int], str]) -> None:
        self.work = Work()
        self._tokenizer = tokenizer
        self._reply = reply

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        tag: str,
        reads: Sequence[TokenSpan] = (),
        memory: Callable[[str], str] | None = None,
    ) -> Turn:
        """See `core.types.Chat`."""
        reply = self._reply(max_tokens)
        if self._tokenizer.has_chat_template:
            prompt = len(self._tokenizer.render_chat(messages))
        else:
            prompt = sum(self._tokenizer.count(message.content) for message in messages)
        tokens = self._tokenizer.count(reply)
        whole = prompt + tokens
        self.work += Work(1, prompt, tokens, float(whole) ** 2, whole)
        return told(Turn(tag, (), reply, "stop", prompt, tokens, 0.0), reads, memory)


@dataclass(frozen=True, slots=True)
class CellWork:
    """Work of one sample of a cell, the mean of those counted. `counted`: how many were."""

    cell: Cell
    sample: Work
    counted: int

    @property
    def exact(self) -> bool:
        """Whether every sample was counted."""
        return self.counted == self.cell.samples


def count_work(
    plan: Plan,
    *,
    reply_tokens: int | None = None,
    looked_at_tokens: int = LOOKED_AT_TOKENS,
) -> list[CellWork]:
    """The work of every cell, in the plan's order. `reply_tokens`: what a reply is taken to have;
    None takes each method's whole budget.

    Raises:
        HarnessError: a sample cannot be made, or a method refuses it.
    """
    known: dict[object, tuple[Work, int]] = {}
    found = []
    for cell in plan.cells:
        model = plan.models[cell.model]
        settings = model.methods[cell.method]
        wanted = min(cell.samples, max(1, looked_at_tokens // max(cell.length, 1)))
        key = (
            *(cell.task, cell.length, cell.method, model.tokenizer.fingerprint, wanted),
            tuple(sorted((name, str(value)) for name, value in settings.items())),
        )
        if key not in known:
            known[key] = run_async(_counted(plan, cell, wanted, reply_tokens)), wanted
        found.append(CellWork(cell, *known[key]))
    return found


async def _counted(plan: Plan, cell: Cell, samples: int, reply_tokens: int | None) -> Work:
    """The mean work of the cell's first samples."""
    model = plan.models[cell.model]
    method = make_method(cell.method, model.tokenizer, model.methods[cell.method])
    chat = CountingChat(model.tokenizer, _replies(model.tokenizer, cell.method, reply_tokens))
    materials = Materials(model.tokenizer, plan.corpora)
    for index in range(samples):
        task = plan.tasks[cell.task]
        sample = task.sample(Coordinates(index, cell.length, plan.seed), materials)
        ended = await rollout(sample, method, chat)
        if ended.failure:
            raise HarnessError(f"{cell.task} at {cell.length} by {cell.method}: {ended.failure}")
    return chat.work.times(1 / samples)


def _replies(tokenizer: Tokenizer, method: str, most: int | None) -> Callable[[int], str]:
    form: str = _form(WRAPPED, method)
    around = tokenizer.count(form.format(""))

    @cache
    def reply(budget: int) -> str:
        wanted = max(min(budget, most or budget) - around, 1)
        ids = tokenizer.encode(FILLER * wanted)[:wanted]
        return form.format(tokenizer.decode(ids))

    return reply


def _form(forms: Mapping[str, str], method: str) -> str:
    return forms.get(base_of(method), "{}")
