"""A draw's chat replays what is stored, and asks what is not or what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.admission import Admission
from benchmarks.store import Cell, Store
from benchmarks.stored_chat import Asking, StoredChat
from core.types import Message, Sampling, Turn

PLACE = (0, 0, 0)


async def said(store: Store, contents: str) -> list[str]:
    """What the server is asked where a method asks each letter of `contents`."""
    asked: list[str] = []

    async def ask(messages: Sequence[Message], *, tag: str, **rest: Any) -> Turn:
        asked.append(messages[0].content)
        return Turn(tag, tuple(messages), f"to {messages[0].content}", "stop", 1, 1, 0.1)

    asking = Asking(ask, Sampling(seed=1), Admission(1000), lambda turn: None)
    chat = StoredChat(store, PLACE, "id", asking)
    for content in contents:
        turn = await chat([Message("user", content)], max_tokens=1, tag="memory")
        assert turn.reply == f"to {content}"
    return asked


async def test_what_is_stored_is_replayed_up_to_the_first_change(tmp_path: Path) -> None:
    with Store.write(tmp_path) as store:
        store.set_up({}, [Cell(0, "t", 1, "m", "x", 1)])
        assert await said(store, "ab") == ["a", "b"]
        assert await said(store, "abc") == ["c"]
        assert await said(store, "axc") == ["x", "c"]
        assert [turn.reply for _, turn in store.turns_of(PLACE)] == ["to a", "to x", "to c"]
        assert await said(store, "axc") == []
