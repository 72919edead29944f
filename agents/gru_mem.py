"""GRU-Mem (Sheng et al., 2026-02-12): MemAgent with two gates that the model writes itself.

    <think>...</think><check>yes|no</check><update>...</update><next>continue|end</next>

The update gate (`check`) says whether a chunk holds anything useful; at `no` the memory stays
as it was, whatever stands in `update`. The exit gate (`next`) ends the reading as soon as
enough is known; `w/o EG` reads on to the end. Questions that ask for all the values are run
without it. A reply that cannot be parsed keeps the memory, goes on, and is counted.

The prompts are the paper's Figure 10. With `answer_layout` "memagent" the last turn is asked as
MemAgent's boxed form asks it, with the tags on lines of their own: the embedded GRU-Mem model was
trained on that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from agents.memagent import ANSWER_BOXED, NO_MEMORY
from core.answers import after_think, extract_boxed
from core.rollout import in_thread
from core.tokens import Tokenizer
from core.types import Answer, Chat, Message, Problem

UPDATE = """You are presented with a problem, a section of an article that may contain the \
answer to the problem, and a previous memory. Please read the provided section carefully. You \
should reason about whether the new section contains useful information about the problem, and \
then update the memory with the new information that helps to answer the problem.

Be sure to retain all relevant details from the previous memory while adding any new, useful \
information. You should also carefully judge whether you have collected enough information to \
answer the problem.

You should reason about whether the new section contains useful information, what to update, \
and what to do next first between <think> and </think>.

If the new section contains useful information about the problem, you should first generate \
<check>yes</check>. After that, update the new memory between <update> and </update>.

If the new section does not contain useful information about the problem, you should first \
generate <check>no</check>. After that, you should keep the previous memory unchanged between \
<update> and </update>.

In the end, if you haven't collected enough information for the problem, return \
<next>continue</next>. ONLY when enough information is collected, return <next>end</next>.

<problem> {prompt} </problem>
<memory> {memory} </memory>
<section> {chunk} </section>"""

ANSWER = """You are presented with a problem and a previous memory. Please answer the problem \
based on the previous memory and put the answer in \\boxed{{}}.

<problem> {prompt} </problem>
<memory> {memory} </memory>

Your answer:"""


AnswerLayout = Literal["paper", "memagent"]


@dataclass(frozen=True, slots=True)
class GruMemSettings:
    """Published: 5,000-token chunks and 2,048 reply tokens on every turn. `answer_layout`: how
    the answer turn lays out problem and memory, as GRU-Mem's paper does or as MemAgent does."""

    chunk_tokens: int = 5000
    reply_tokens: int = 2048
    exit_gate: bool = True
    answer_layout: AnswerLayout = "paper"


@dataclass(frozen=True, slots=True)
class Gates:
    """A parsed reply: `useful` is the update gate, `done` the exit gate."""

    useful: bool
    memory: str
    done: bool


_TEXT = r"(?:(?!</?(?:think|check|update|next)>).)*"
"""Anything but a tag: what stands between tags holds no other."""
REPLY = re.compile(
    r"\s*<check>\s*(yes|no)\s*</check>\s*"
    rf"<update>({_TEXT})</update>\s*"
    r"<next>\s*(continue|end)\s*</next>\s*",
    re.DOTALL | re.IGNORECASE,
)


def parse_gates(reply: str) -> Gates | None:
    """The gates of a memory turn's reply, None where it breaks the format.

    What stands before the last `</think>` is thought and not looked at. A tag inside another breaks
    the format: such a memory would read as a reply of its own in the next prompt.
    """
    found = REPLY.fullmatch(after_think(reply))
    if found is None:
        return None
    check, memory, following = found.groups()
    return Gates(check.lower() == "yes", memory.strip(), following.lower() == "end")


def _part(tag: str, inside: str) -> str:
    return rf"\s*<{tag}>{inside}</{tag}>\s*"


WHOLE_REPLY = re.compile(
    _part("think", _TEXT)
    + _part("check", r"\s*(?:yes|no)\s*")
    + _part("update", _TEXT)
    + _part("next", r"\s*(?:continue|end)\s*"),
    re.DOTALL,
)


def in_paper_format(reply: str) -> bool:
    """Whether a memory turn's reply is just what the prompt asks for: thought, check, update and
    next, each enclosed in its tags, in this order, with no tag inside another and no text beside
    them. `parse_gates` takes less."""
    return WHOLE_REPLY.fullmatch(reply) is not None


def updated(memory: str, reply: str) -> str:
    """The memory after a memory turn: the reply's, where it parses and opens the update gate."""
    gates = parse_gates(reply)
    return gates.memory if gates is not None and gates.useful else memory


class GruMem:
    """The workflow, for one tokenizer. Stateless: one object serves any number of rollouts.

    `Answer.counts`: `chunks_read`, `unparsed_turns`, `updates`, `exited` (1 where the exit
    gate ended the reading).
    """

    label = "GRU-Mem"
    variants: Mapping[str, str] = {"exit_gate=false": "w/o EG", "exit_gate=true": "w/ EG"}
    colours = ("#009E73", "#117733", "#88CC66")
    prompts = (NO_MEMORY, UPDATE, ANSWER, ANSWER_BOXED)

    def __init__(self, tokenizer: Tokenizer, settings: GruMemSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings

    def most_tokens(self, question: str) -> int:
        """See core/methods.py. A memory is part of a reply, so a turn holds two of them."""
        prompt = UPDATE.format(prompt=question.strip(), memory="", chunk="")
        around = len(self.tokenizer.render_chat([Message("user", prompt)]))
        return around + self.settings.chunk_tokens + 2 * self.settings.reply_tokens

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        """See `core.types.Method`."""
        question = problem.question.strip()
        memory = NO_MEMORY
        counts = {"chunks_read": 0, "unparsed_turns": 0, "updates": 0, "exited": 0}
        chunks = problem.context.chunks(self.tokenizer, self.settings.chunk_tokens)
        async for chunk in in_thread(chunks):
            prompt = UPDATE.format(prompt=question, memory=memory, chunk=chunk.text)
            turn = await chat(
                [Message("user", prompt, [chunk.known])],
                max_tokens=self.settings.reply_tokens,
                tag="memory",
                reads=[chunk.tokens],
                memory=partial(updated, memory),
            )
            memory = updated(memory, turn.reply)
            gates = parse_gates(turn.reply)
            counts["chunks_read"] += 1
            counts["unparsed_turns"] += gates is None
            counts["updates"] += gates is not None and gates.useful
            if gates is not None and gates.done and self.settings.exit_gate:
                counts["exited"] = 1
                break
        template = ANSWER if self.settings.answer_layout == "paper" else ANSWER_BOXED
        prompt = template.format(prompt=question, memory=memory)
        turn = await chat(
            [Message("user", prompt)], max_tokens=self.settings.reply_tokens, tag="answer"
        )
        reply = after_think(turn.reply)
        return Answer(reply, extract_boxed(reply), counts=counts)
