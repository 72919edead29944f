"""The cleaning of questions: what counts as known, what is asked, and how it resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import (
    RequestFailed,
    ServerDied,
    SettingsChanged,
    StoreError,
    UsageError,
)
from tasks.corpora.read import Question
from tests.conftest import SHARED, ScriptedChat
from training.cleaning import (
    PROMPT,
    SAMPLING,
    Verdicts,
    answers_without_context,
    clean,
)

QUESTIONS = [Question(f"Q{n}?", (f"gold{n}",), (), (), ()) for n in range(6)]


def knows(*numbers: int) -> Callable[[str, str], str]:
    """A model that answers these questions and no others."""
    known = {PROMPT.format(question=f"Q{n}?"): rf"\boxed{{gold{n}}}" for n in numbers}
    return lambda prompt, _: known.get(prompt, r"\boxed{who knows}")


def numbers(chat: ScriptedChat) -> list[int]:
    """The questions that the model was asked, in order."""
    return [int(prompt[1]) for prompt, _, _ in chat.asked]


@pytest.mark.skipif(not (SHARED / "PROTOCOL.md").is_file(), reason="no ../shared")
def test_the_prompt_stands_in_the_protocol() -> None:
    shown = PROMPT.format(question="{question}").replace("\n", "\\n")
    assert f"`{shown}`" in (SHARED / "PROTOCOL.md").read_text(encoding="utf-8")


def test_the_prompt_is_pinned() -> None:
    assert PROMPT.format(question="Who?") == "Who?\nYour final answer in \\boxed{}.\n"
    assert (SAMPLING.temperature, SAMPLING.top_p) == (1.0, 0.7)


@pytest.mark.parametrize(
    ("reply", "known"),
    [
        (r"It is \boxed{New\, York}", True),  # equal but for spacing
        ("I think of NEW YORK City.", True),  # contained, in any case
        ("<think>New York</think>No idea.", False),
        (r"\boxed{York}", False),
    ],
)
def test_a_boxed_or_contained_gold_is_known(reply: str, known: bool) -> None:
    assert answers_without_context(reply, ("Boston", "New York")) is known


async def test_questions_that_a_model_answers_are_dropped_and_counted(tmp_path: Path) -> None:
    first, second = ScriptedChat(knows(1, 3)), ScriptedChat(knows(3, 4))
    with Verdicts.open(tmp_path / "v.jsonl", "sha") as verdicts:
        report = await clean(QUESTIONS, {"a": first, "b": second}, verdicts, concurrency=1)
    assert report.kept == (0, 2, 5)
    assert (report.questions, report.answered, report.undecided) == (6, {"a": 2, "b": 1}, 0)
    # Two samples unless the first is right; not asked again what another model answered.
    assert numbers(first) == [0, 0, 1, 2, 2, 3, 4, 4, 5, 5]
    assert numbers(second) == [0, 0, 2, 2, 4, 5, 5]
    assert {asked[2] for asked in first.asked} == {512}


async def test_one_right_sample_of_two_is_enough(tmp_path: Path) -> None:
    chat = ScriptedChat(lambda _, tag: "gold0" if tag == "sample1" else "no")
    with Verdicts.open(tmp_path / "v.jsonl", "sha") as verdicts:
        report = await clean(QUESTIONS[:1], {"a": chat}, verdicts)
    assert report.kept == ()


async def test_a_dead_server_stops_the_run_and_the_next_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"

    def dies(prompt: str, tag: str) -> str:
        if prompt.startswith("Q3"):
            raise ServerDied("gone")
        return knows(1)(prompt, tag)

    with Verdicts.open(path, "sha") as verdicts, pytest.raises(ServerDied, match="gone"):
        await clean(QUESTIONS, {"a": ScriptedChat(dies)}, verdicts, concurrency=1)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"question": 3, "model": "a", "answ')  # a write that was cut short
    again = ScriptedChat(knows(1))
    with Verdicts.open(path, "sha") as verdicts:
        report = await clean(QUESTIONS, {"a": again}, verdicts, concurrency=1)
    assert numbers(again) == [3, 3, 4, 4, 5, 5]
    assert (report.kept, report.answered) == ((0, 2, 3, 4, 5), {"a": 1})
    assert [json.loads(line)["question"] for line in path.read_text().splitlines()[1:]] == [
        *range(6)
    ]


async def test_a_second_model_may_come_in_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    with Verdicts.open(path, "sha") as verdicts:
        await clean(QUESTIONS, {"a": ScriptedChat(knows(1))}, verdicts)
    with Verdicts.open(path, "sha") as verdicts:
        report = await clean(QUESTIONS, {"b": ScriptedChat(knows(0, 1))}, verdicts)
    assert (report.kept, report.answered) == ((2, 3, 4, 5), {"a": 1, "b": 1})


async def test_a_failed_request_leaves_its_question_undecided(tmp_path: Path) -> None:
    def fails(prompt: str, tag: str) -> str:
        if prompt.startswith("Q2"):
            raise RequestFailed("500")
        return knows(1)(prompt, tag)

    path = tmp_path / "v.jsonl"
    with Verdicts.open(path, "sha") as verdicts:
        report = await clean(QUESTIONS, {"a": ScriptedChat(fails)}, verdicts)
    assert (report.kept, report.undecided) == ((0, 3, 4, 5), 1)
    with Verdicts.open(path, "sha") as verdicts:
        report = await clean(QUESTIONS, {"a": ScriptedChat(knows(1))}, verdicts)
    assert (report.kept, report.undecided) == ((0, 2, 3, 4, 5), 0)


def test_a_file_of_other_questions_or_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    with Verdicts.open(path, "sha") as verdicts:
        verdicts.add(0, "a", False)
    with pytest.raises(SettingsChanged, match="other"):
        Verdicts.open(path, "other")
    path.write_text(path.read_text() + '{"question": 1}\n')
    with pytest.raises(StoreError, match="no verdict"):
        Verdicts.open(path, "sha")
    path.write_text("nonsense\n")
    with pytest.raises(StoreError, match="line 1: not JSON"):
        Verdicts.open(path, "sha")


async def test_nothing_to_clean_is_refused(tmp_path: Path) -> None:
    with Verdicts.open(tmp_path / "v.jsonl", "sha") as verdicts, pytest.raises(UsageError):
        await clean([], {"a": ScriptedChat(knows())}, verdicts)
