"""The two ways in which replies mark their answer, and the parsers for them.

A prompt that asks for `Therefore, the answer is (insert answer here)` is read by
`extract_answer`; one that asks for `\\boxed{}` by `extract_boxed`. Both want the reply without
its reasoning: `after_think` first. Sources: MemAgent's evaluation and training code
(arXiv:2507.02259); the boxed parser behaves like the one of the MATH benchmark.
"""

from __future__ import annotations

from core.types import AnswerForm

THINK_BEGIN, THINK_END = "<think>", "</think>"
ANSWER_MARK = "the answer is"
BOX = "\\boxed"


def after_think(reply: str) -> str:
    """What follows the last `</think>`; the whole reply if there is none."""
    return reply.rpartition(THINK_END)[2]


def answered(reply: str, form: AnswerForm) -> tuple[str, str | None]:
    """A reply without its reasoning, and the answer in it, marked as `form` asks for it."""
    said = after_think(reply)
    return said, extract_answer(said) if form == "therefore" else extract_boxed(said)


def extract_answer(reply: str) -> str | None:
    """What follows the last `the answer is`, without `*` and outer white space and dots.

    None if the reply does not say `the answer is` (in lower case: `The answer is` does not
    count, as published). The result may be empty.

    >>> extract_answer("Therefore, the answer is **(Paris)**.")
    '(Paris)'
    """
    _, mark, answer = reply.replace("*", "").rpartition(ANSWER_MARK)
    return answer.strip().strip(".").strip() if mark else None


def extract_boxed(reply: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces balanced; None if there is no whole one.

    As published, `\boxed x$` (a space and no brace) counts as well, before any braced one:
    its content runs up to the next dollar sign, or to the end.

    >>> extract_boxed(r"so \boxed{a} or \boxed{\text{b}}")
    '\\text{b}'
    """
    _, bare, rest = reply.rpartition(BOX + " ")
    if bare:
        return rest.partition("$")[0]
    start = reply.rfind(BOX)
    if start < 0:
        return None
    return _braced(reply[start + len(BOX) :])


def _braced(text: str) -> str | None:
    """The inside of the group that `text` begins with."""
    if not text.startswith("{"):
        return None
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[1:place]
    return None
