"""The parsers of both answer forms."""

from __future__ import annotations

import pytest

from core.answers import after_think, extract_answer, extract_boxed


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Therefore, the answer is Paris.", "Paris"),
        ("the answer is a. No, the answer is **(b)**.", "(b)"),
        ("So the answer is\n28,000 in 1999\n", "28,000 in 1999"),
        ("the answer is ...", ""),
        ("the answer is 3.14", "3.14"),
        ("The answer is Paris.", None),
        ("The answers are 1", None),
        ("", None),
    ],
)
def test_answer_is_what_follows_the_last_mark(reply: str, answer: str | None) -> None:
    assert extract_answer(reply) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"\boxed{a} then \boxed{b}.", "b"),
        (r"\boxed{\text{a {b} c}} end }", r"\text{a {b} c}"),
        (r"\boxed{never closed", None),
        (r"\boxed{a} \boxed{open", None),
        (r"\boxed x$ done \boxed{y}", "x"),
        (r"\boxed{}", ""),
        (r"\boxedx", None),
        ("boxed{a}", None),
    ],
)
def test_boxed_is_the_last_whole_box(reply: str, answer: str | None) -> None:
    assert extract_boxed(reply) == answer


def test_reasoning_is_dropped_up_to_its_last_end() -> None:
    assert after_think("<think>a</think>b</think> c") == " c"
    assert after_think("no reasoning") == "no reasoning"
