"""Map-reduce takes notes of each chunk, and notes of the notes until they fit into one turn."""

from __future__ import annotations

import hashlib
import re

import pytest

from baselines.map_reduce import (
    ANSWER,
    ANSWER_BOXED,
    GAP,
    MERGE,
    NOTES,
    MapReduce,
    MapReduceSettings,
)
from core.context import Context
from core.errors import UsageError
from core.rollout import rollout
from core.tokens import Tokenizer
from core.types import Problem
from tests.conftest import ScriptedChat, make_sample

PINNED = "03c30a57486307dc"
QUESTION = "What colour is the sky?"


def test_prompts_are_pinned() -> None:
    text = NOTES + MERGE + ANSWER + ANSWER_BOXED
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == PINNED


async def test_every_chunk_is_read_alone_and_the_answer_is_given_from_the_notes(
    tokenizer: Tokenizer,
) -> None:
    context = Context([f"line {i}" for i in range(60)])
    chunks = list(context.chunks(tokenizer, 100))

    def reply(content: str, tag: str) -> str:
        if tag == "answer":
            return "Therefore, the answer is blue."
        return "<think>hm</think> From " + re.findall(r"line \d+", content)[0]

    chat = ScriptedChat(reply)
    method = MapReduce(tokenizer, MapReduceSettings(chunk_tokens=100, reply_tokens=30))
    ended = await rollout(make_sample(context.pieces, f" {QUESTION} "), method, chat)
    asked = [content for content, _, _ in chat.asked]
    assert asked[:-1] == [NOTES.format(prompt=QUESTION, chunk=c.text) for c in chunks]
    notes = GAP.join("From " + re.findall(r"line \d+", c.text)[0] for c in chunks)
    assert asked[-1] == ANSWER.format(prompt=QUESTION, notes=notes)
    assert [turn.reads for turn in ended.turns] == [*((c.tokens,) for c in chunks), ()]
    assert {budget for _, _, budget in chat.asked} == {30}
    assert ended.answer is not None
    assert ended.answer.prediction == "blue"
    assert ended.answer.counts == {"chunks_read": len(chunks), "notes": len(chunks), "merges": 0}


async def test_notes_that_do_not_fit_are_merged_in_order_until_they_do(
    tokenizer: Tokenizer,
) -> None:
    context = Context([f"line {i}" for i in range(400)])

    def reply(content: str, tag: str) -> str:
        seen = re.findall(r"\d+", content.partition("</problem>")[2])
        return f"{seen[0]} to {seen[-1]}: " + "blue and green and so on, " * 3

    chat = ScriptedChat(reply)
    settings = MapReduceSettings(chunk_tokens=120, reply_tokens=50, answer_form="boxed")
    method = MapReduce(tokenizer, settings)
    answer = await method.answer(Problem(context, QUESTION), chat)
    tags = [tag for _, tag, _ in chat.asked]
    assert tags == sorted(tags, key=["notes", "merge", "answer"].index)
    merges = [content for content, tag, _ in chat.asked if tag == "merge"]
    assert answer.counts["merges"] == len(merges) > len(tags) / 4
    for content in merges:
        notes = content.partition("<notes>\n")[2].partition("\n</notes>")[0]
        assert tokenizer.count(notes) <= 120
        starts = [int(re.findall(r"\d+", note)[0]) for note in notes.split(GAP)]
        assert starts == sorted(starts)
        assert len(starts) > 1
    last = chat.asked[-1][0]
    assert "0 to " in last
    assert last.endswith("Your answer:\n")
    around = tokenizer.count(ANSWER_BOXED.format(prompt=QUESTION, notes=""))
    assert tokenizer.count(last) <= around + 120


async def test_a_chunk_with_nothing_of_use_leaves_no_note(tokenizer: Tokenizer) -> None:
    replies = iter(["Nothing", "nothing.", "  ", "blue", "Therefore, the answer is blue"])
    chat = ScriptedChat(lambda *_: next(replies))
    context = Context(["ab"] * 100)
    size = -(-context.count(tokenizer) // 4)
    method = MapReduce(tokenizer, MapReduceSettings(chunk_tokens=size, reply_tokens=9))
    answer = await method.answer(Problem(context, "q"), chat)
    assert chat.asked[-1][0] == ANSWER.format(prompt="q", notes="blue")
    assert answer.counts == {"chunks_read": 4, "notes": 1, "merges": 0}


async def test_no_turn_is_larger_than_told(tokenizer: Tokenizer) -> None:
    method = MapReduce(tokenizer, MapReduceSettings(chunk_tokens=120, reply_tokens=50))
    chat = ScriptedChat(lambda *_: "blue and green " * 30)  # more than was asked for
    await method.answer(Problem(Context([f"line {i}" for i in range(300)]), QUESTION), chat)
    template = 12  # ChatML's marks around one message
    most = max(tokenizer.count(content) + budget + template for content, _, budget in chat.asked)
    assert most <= method.most_tokens(QUESTION)


def test_notes_that_cannot_be_merged_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="two notes must fit into the 100 chunk_tokens"):
        MapReduce(tokenizer, MapReduceSettings(chunk_tokens=100, reply_tokens=50))
