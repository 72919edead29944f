"""GRU-Mem's gates: what keeps the memory, what overwrites it, what ends the reading."""

from __future__ import annotations

import pytest

from agents.gru_mem import UPDATE, Gates, GruMem, GruMemSettings, parse_gates
from core.context import Context
from core.tokens import Tokenizer
from core.types import Problem
from tests.conftest import SHARED, ScriptedChat

CONTEXT = Context(["one two three four five six seven eight"])


def reply(check: str, update: str, following: str) -> str:
    gates = f"<check>{check}</check><update>{update}</update>"
    return f"<think>hm</think>\n{gates}<next>{following}</next>"


@pytest.mark.skipif(not (SHARED / "PROTOCOL.md").is_file(), reason="no ../shared")
def test_prompt_stands_in_the_protocol() -> None:
    assert UPDATE in (SHARED / "PROTOCOL.md").read_text(encoding="utf-8")


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
