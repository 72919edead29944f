"""MemAgent asks the protocol's prompts, chunk by chunk, and carries the memory."""

from __future__ import annotations

import hashlib

import pytest

from agents.memagent import ANSWER, ANSWER_BOXED, UPDATE, MemAgent, MemAgentSettings
from core.answers import after_think
from core.context import Context
from core.rollout import rollout
from core.tokens import Tokenizer
from core.types import Problem
from tests.conftest import SHARED, ScriptedChat, make_sample

PINNED = ["49fa58187bb7d23e", "76c0395b111bb180", "ac0d288bd6ca474b"]


def test_prompts_are_the_protocol_byte_for_byte() -> None:
    hashes = [hashlib.sha256(p.encode()).hexdigest()[:16] for p in (UPDATE, ANSWER, ANSWER_BOXED)]
    assert hashes == PINNED


@pytest.mark.skipif(not (SHARED / "PROTOCOL.md").is_file(), reason="no ../shared")
def test_prompts_stand_in_the_protocol() -> None:
    protocol = (SHARED / "PROTOCOL.md").read_text(encoding="utf-8")
    assert UPDATE in protocol
    assert ANSWER in protocol
    assert ANSWER_BOXED.partition("\n")[0].format() in protocol
    assert ANSWER_BOXED.partition("\n")[2] == ANSWER.partition("\n")[2]


async def test_each_chunk_overwrites_the_memory_and_the_answer_sees_only_the_last(
    tokenizer: Tokenizer,
) -> None:
    context = Context(["alpha beta gamma delta"] * 5)
    chunks = [c.text for c in context.chunks(tokenizer, 16)]
    count = iter(range(100))
    chat = ScriptedChat(
        lambda _, tag: f"M{next(count)}" if tag == "memory" else "Therefore, the answer is 42."
    )
    agent = MemAgent(tokenizer, MemAgentSettings(chunk_tokens=16, reply_tokens=7))

    answer = await agent.answer(Problem(context, "  Which? \n"), chat)

    memories = ["No previous memory", *(f"M{i}" for i in range(len(chunks)))]
    expected = [
        (UPDATE.format(prompt="Which?", memory=memory, chunk=chunk), "memory", 7)
        for memory, chunk in zip(memories, chunks, strict=False)
    ]
    expected.append((ANSWER.format(prompt="Which?", memory=memories[-1]), "answer", 7))
    assert chat.asked == expected
    assert (answer.prediction, answer.truncated_tokens) == ("42", 0)


async def test_what_was_thought_is_not_remembered(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(lambda _, tag: "<think>a</think>b</think>kept" if tag == "memory" else "x")
    answer = await MemAgent(tokenizer, MemAgentSettings()).answer(
        Problem(Context(["text"]), "q"), chat
    )
    assert "<memory>\nkept\n</memory>" in chat.asked[-1][0]
    assert answer.prediction is None


async def test_braces_in_a_document_stay_as_they_are(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(lambda *_: "{memory} {0}")
    await MemAgent(tokenizer, MemAgentSettings()).answer(
        Problem(Context(["{chunk} {prompt}"]), "{q}"), chat
    )
    assert "<section>\n{chunk} {prompt}\n</section>" in chat.asked[0][0]
    assert "<memory>\n{memory} {0}\n</memory>" in chat.asked[1][0]


async def test_a_context_cap_cuts_the_middle(tokenizer: Tokenizer) -> None:
    context = Context(["".join(f" {i}" for i in range(200))])
    ids = tokenizer.encode(context.text().strip())
    chat = ScriptedChat(lambda *_: "m")
    agent = MemAgent(tokenizer, MemAgentSettings(chunk_tokens=1000, context_cap=40))
    answer = await agent.answer(Problem(context, "q"), chat)
    section = tokenizer.decode(ids[:20]) + tokenizer.decode(ids[-20:])
    assert f"<section>\n{section}\n</section>" in chat.asked[0][0]
    assert answer.truncated_tokens == len(ids) - 40


async def test_boxed_form_asks_for_and_reads_a_box(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(lambda *_: r"so \boxed{42}")
    agent = MemAgent(tokenizer, MemAgentSettings(answer_form="boxed"))
    answer = await agent.answer(Problem(Context(["text"]), "q"), chat)
    assert r"put the answer in \boxed{}." in chat.asked[-1][0]
    assert answer.prediction == "42"


async def test_each_turn_tells_what_it_read_and_what_the_memory_is_then(
    tokenizer: Tokenizer,
) -> None:
    chat = ScriptedChat(lambda content, tag: f"<think>x</think>{tag} {len(content)}")
    sample = make_sample(["one two three four five six seven eight nine ten"])
    settings = MemAgentSettings(chunk_tokens=5)
    end = await rollout(sample, MemAgent(tokenizer, settings), chat)
    total = sample.problem.context.count(tokenizer)
    read = [span for turn in end.turns for span in turn.reads]
    assert [span.start for span in read] == list(range(0, total, 5))
    assert [span.end for span in read] == [*range(5, total, 5), total]
    *memories, answer = end.turns
    assert [turn.memory for turn in memories] == [after_think(turn.reply) for turn in memories]
    assert answer.reads == ()
    assert answer.memory is None


async def test_under_a_cap_turns_tell_their_places_in_the_whole_context(
    tokenizer: Tokenizer,
) -> None:
    chat = ScriptedChat(lambda content, tag: "m")
    sample = make_sample(["abcdefghij " * 40])
    total = sample.problem.context.count(tokenizer)
    settings = MemAgentSettings(chunk_tokens=6, context_cap=16)
    end = await rollout(sample, MemAgent(tokenizer, settings), chat)
    read = [(span.start, span.end) for turn in end.turns for span in turn.reads]
    assert read == [(0, 6), (6, 8), (total - 8, total - 4), (total - 4, total)]
