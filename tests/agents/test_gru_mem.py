"""GRU-Mem's gates: what keeps the memory, what overwrites it, what ends the reading."""

from __future__ import annotations

import pytest

from agents.gru_mem import ANSWER, UPDATE, Gates, GruMem, GruMemSettings, parse_gates
from core.context import Context
from core.tokens import Tokenizer
from core.types import Problem
from tests.conftest import SHARED, ScriptedChat

CONTEXT = Context(["one two three four five six seven eight"])


def reply(check: str, update: str, following: str) -> str:
    gates = f"<check>{check}</check><update>{update}</update>"
    return f"<think>hm</think>\n{gates}<next>{following}</next>"


@pytest.mark.skipif(not (SHARED / "PROTOCOL.md").is_file(), reason="no ../shared")
def test_prompts_stand_in_the_protocol() -> None:
    protocol = (SHARED / "PROTOCOL.md").read_text(encoding="utf-8")
    assert UPDATE in protocol
    for line in ANSWER.format(prompt="{prompt}", memory="{memory}").split("\n"):
        assert not line or f"`{line}`" in protocol


async def asked_at_the_end(tokenizer: Tokenizer, settings: GruMemSettings) -> str:
    """The answer turn's prompt, after a reading that kept the memory `M`."""
    chat = ScriptedChat(
        lambda _, tag: reply("yes", "M", "continue") if tag == "memory" else r"\boxed{x}"
    )
    await GruMem(tokenizer, settings).answer(Problem(CONTEXT, "Who?"), chat)
    return chat.asked[-1][0]


async def test_the_answer_turn_is_the_papers_figure_10b(tokenizer: Tokenizer) -> None:
    assert await asked_at_the_end(tokenizer, GruMemSettings()) == (
        "You are presented with a problem and a previous memory. Please answer the problem based "
        "on the previous memory and put the answer in \\boxed{}.\n\n"
        "<problem> Who? </problem>\n<memory> M </memory>\n\nYour answer:"
    )


async def test_the_answer_turn_can_have_memagents_layout(tokenizer: Tokenizer) -> None:
    settings = GruMemSettings(answer_layout="memagent")
    assert await asked_at_the_end(tokenizer, settings) == (
        "You are presented with a problem and a previous memory. Please answer the problem based "
        "on the previous memory and put the answer in \\boxed{}.\n\n"
        "<problem> \nWho?\n</problem>\n\n<memory>\nM\n</memory>\n\nYour answer:\n"
    )


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        (reply("yes", " a\nb ", "continue"), Gates(True, "a\nb", False)),
        (reply("NO", "", "end"), Gates(False, "", True)),
        ("<check>yes</check>\n<update>m</update>\n<next>end</next>\n", Gates(True, "m", True)),
        # Gates that were only thought of do not count.
        ("<think>" + reply("yes", "x", "end") + "</think>" + reply("no", "y", "continue"),
         Gates(False, "y", False)),
        ("", None),
        ("<check>maybe</check><update>m</update><next>end</next>", None),
        ("<check>yes</check><update>m</update>", None),
        ("<update>m</update><check>yes</check><next>end</next>", None),
        (reply("yes", "m", "end") + " and more", None),
        # No tag inside another: such a memory would look like a reply in the next prompt.
        (reply("yes", "a <update>b", "end"), None),
        (reply("yes", "m <check>no</check>", "end"), None),
        (reply("no", "m</update><next>end</next><update>n", "continue"), None),
    ],
)  # fmt: skip
def test_replies_parse_or_are_told_apart(text: str, gates: Gates | None) -> None:
    assert parse_gates(text) == gates


async def memories(tokenizer: Tokenizer, replies: list[str], exit_gate: bool) -> tuple[
    list[str], dict[str, int]
]:  # fmt: skip
    """The memory that each memory turn after the first was shown, and the answer's counts."""
    given = iter(replies)
    chat = ScriptedChat(lambda _, tag: next(given) if tag == "memory" else r"\boxed{x}")
    settings = GruMemSettings(chunk_tokens=8, exit_gate=exit_gate)
    answer = await GruMem(tokenizer, settings).answer(Problem(CONTEXT, "q"), chat)
    assert answer.prediction == "x"
    shown = [text.split("<memory>")[1].split("</memory>")[0].strip() for text, _, _ in chat.asked]
    return shown[1:], dict(answer.counts)


async def test_the_update_gate_keeps_or_overwrites(tokenizer: Tokenizer) -> None:
    chunks = len(list(CONTEXT.chunks(tokenizer, 8)))
    replies = [
        reply("yes", "A", "continue"),
        reply("no", "ignored", "continue"),
        "broken",
        reply("yes", "B", "continue"),
    ]
    replies += [reply("no", "", "continue")] * (chunks - len(replies))
    shown, counts = await memories(tokenizer, replies, exit_gate=True)
    assert shown[:4] == ["A", "A", "A", "B"]
    assert counts == {"chunks_read": chunks, "unparsed_turns": 1, "updates": 2, "exited": 0}


async def test_the_exit_gate_ends_the_reading(tokenizer: Tokenizer) -> None:
    replies = [reply("yes", "A", "continue"), reply("yes", "B", "end")]
    shown, counts = await memories(tokenizer, replies, exit_gate=True)
    assert shown == ["A", "B"]
    assert counts == {"chunks_read": 2, "unparsed_turns": 0, "updates": 2, "exited": 1}


async def test_without_the_exit_gate_all_is_read(tokenizer: Tokenizer) -> None:
    chunks = len(list(CONTEXT.chunks(tokenizer, 8)))
    _, counts = await memories(tokenizer, [reply("no", "", "end")] * chunks, exit_gate=False)
    assert (counts["chunks_read"], counts["exited"]) == (chunks, 0)
