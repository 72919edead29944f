"""The fixed texts between the slots of all prompts and replies that the pocket model knows.

Taken from the agents, the baseline and the tasks themselves. `FixedTexts` names them; its order is
the order of the pocket tokenizer's added tokens, which its ids depend on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from agents import gru_mem, memagent
from baselines import full_context
from tasks.ruler import niah, vt

FOUND = "Found:"
"""What a memory that holds something begins with."""
UNKNOWN = " unknown."
"""The answer where it holds nothing."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class FixedTexts(Generic[T]):
    """One thing (a text, its tokens) for each fixed text."""

    memory_opens: T
    answer_opens: T
    boxed_opens: T
    to_memory: T
    to_section: T
    memory_closes: T
    answer_closes: T
    context_opens: T
    context_closes: T
    context_format: T
    one_is_hidden: T
    some_are_hidden: T
    what_is: T
    what_are: T
    mentioned: T
    track: T
    find: T
    in_text: T
    answer_is: T
    no_memory: T
    gated_opens: T
    gated_to_memory: T
    gated_to_section: T
    gated_closes: T
    check_yes: T
    check_no: T
    update_opens: T
    update_closes: T
    next_continue: T
    next_end: T
    boxed: T
    paper_opens: T
    paper_closes: T
    think_opens: T
    think_closes: T
    think_nothing: T

    def map(self, change: Callable[[T], U]) -> FixedTexts[U]:
        """The same of what `change` makes of each."""
        return FixedTexts(*map(change, self.all))

    @property
    def all(self) -> tuple[T, ...]:
        """In order."""
        return tuple(getattr(self, field.name) for field in fields(self))


def between_slots(template: str) -> list[str]:
    """The fixed parts of a template for `str.format`.

    >>> between_slots("{prompt}: {{}} {chunk}.")
    ['', ': {} ', '.']
    """
    parts = re.split(r"(?<!\{)\{\w+\}(?!\})", template)
    return [part.replace("{{", "{").replace("}}", "}") for part in parts]


def _fixed_texts() -> FixedTexts[str]:
    memory_opens, to_memory, to_section, memory_closes = between_slots(memagent.UPDATE)
    answer_opens, _, answer_closes = between_slots(memagent.ANSWER)
    boxed_opens, _, _ = between_slots(memagent.ANSWER_BOXED)
    context_closes, context_format = between_slots(full_context.THEREFORE)
    what_is, mentioned = between_slots(niah.QUESTION[True].replace("{kind}", "number"))
    what_are, _ = between_slots(niah.QUESTION[False].replace("{kind}", "numbers"))
    find, in_text = between_slots(vt.ASK)
    gated_opens, gated_to_memory, gated_to_section, gated_closes = between_slots(gru_mem.UPDATE)
    paper_opens, _, paper_closes = between_slots(gru_mem.ANSWER)
    return FixedTexts(
        memory_opens=memory_opens,
        answer_opens=answer_opens,
        boxed_opens=boxed_opens,
        to_memory=to_memory,
        to_section=to_section,
        memory_closes=memory_closes,
        answer_closes=answer_closes,
        context_opens=full_context.BEFORE,
        context_closes=context_closes,
        context_format=context_format,
        one_is_hidden=niah.MAGIC[True].format(kind="number"),
        some_are_hidden=niah.MAGIC[False].format(kind="numbers"),
        # A word's token begins with the space before it, so a slot's space is not fixed text.
        what_is=f" {what_is.rstrip()}",
        what_are=f" {what_are.rstrip()}",
        mentioned=mentioned,
        track=vt.INSTRUCTION,
        find=f" {find.rstrip()}",
        in_text=in_text,
        answer_is="Therefore, the answer is",
        no_memory=memagent.NO_MEMORY,
        gated_opens=gated_opens,
        gated_to_memory=gated_to_memory,
        gated_to_section=gated_to_section,
        gated_closes=gated_closes,
        check_yes="<check>yes</check>",
        check_no="<check>no</check>",
        update_opens="<update>",
        update_closes="</update>",
        next_continue="<next>continue</next>",
        next_end="<next>end</next>",
        boxed="\\boxed{",
        paper_opens=paper_opens,
        paper_closes=paper_closes,
        think_opens="<think>",
        think_closes="</think>",
        think_nothing="<think>Nothing new.</think>",
    )


FIXED_TEXTS = _fixed_texts()
