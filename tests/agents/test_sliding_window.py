"""The sliding window reads the end of the context, and nothing before it."""

from __future__ import annotations

from baselines.full_context import BEFORE, BOXED, THEREFORE
from baselines.sliding_window import SlidingWindow, SlidingWindowSettings
from core.context import Context
from core.rollout import rollout
from core.tokens import Tokenizer
from core.types import Problem, TokenSpan
from tests.conftest import ScriptedChat, make_sample


async def test_a_long_context_loses_its_beginning(tokenizer: Tokenizer) -> None:
    context = Context([f"line {i}" for i in range(400)])
    ids = tokenizer.encode(context.text())
    chat = ScriptedChat(lambda *_: "x Therefore, the answer is 7.")
    method = SlidingWindow(tokenizer, SlidingWindowSettings(input_tokens=301, output_tokens=9))
    sample = make_sample(context.pieces, " q ")
    ended = await rollout(sample, method, chat)
    before, after = tokenizer.encode(BEFORE), tokenizer.encode(THEREFORE.format(question="q"))
    room = 301 - len(before) - len(after)
    end = tokenizer.decode(ids[-room:])
    assert chat.asked == [(BEFORE + end + THEREFORE.format(question="q"), "answer", 9)]
    assert ended.turns[0].reads == (TokenSpan(len(ids) - room, len(ids)),)
    assert ended.answer is not None
    assert ended.answer.prediction == "7"
    assert ended.answer.truncated_tokens == len(ids) - room


async def test_a_short_context_is_sent_whole(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(lambda *_: r"\boxed{Paris}")
    settings = SlidingWindowSettings(answer_form="boxed")
    answer = await SlidingWindow(tokenizer, settings).answer(
        Problem(Context(["a", "b"]), "q"), chat
    )
    assert chat.asked[0][0] == BEFORE + "a\nb" + BOXED.format(question="q")
    assert (answer.prediction, answer.truncated_tokens) == ("Paris", 0)


def test_its_largest_turn_is_told(tokenizer: Tokenizer) -> None:
    method = SlidingWindow(tokenizer, SlidingWindowSettings(input_tokens=500, output_tokens=50))
    assert 550 < method.most_tokens("What?") < 570
