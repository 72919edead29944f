"""Evidence among the tokens, for any tokenizer and any text."""

from __future__ import annotations

from itertools import islice
from typing import NoReturn

import pytest

from core.context import Context
from core.evidence import place, placed
from core.tokens import Tokenizer
from core.types import Evidence
from tests.tasks.test_show_and_export import hostile_sample


@pytest.mark.parametrize("block", [8, 1 << 15])
def test_evidence_begins_and_ends_in_the_tokens_that_hold_its_first_and_last_byte(
    any_tokenizer: Tokenizer, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.tokens.BLOCK_CHARS", block)
    monkeypatch.setattr("core.context.BLOCK_CHARS", block)
    sample = hostile_sample()
    context = sample.problem.context
    ids = any_tokenizer.encode(context.text().strip())
    placement = place(context, sample.evidence, any_tokenizer)
    assert placement.tokens == len(ids)
    assert placement.characters == len(context.text())
    for one in placement.evidence:
        start, end = one.tokens.start, one.tokens.end
        assert context.text()[one.characters.start : one.characters.end] == one.evidence.text
        assert one.depth == one.characters.start / len(context.text())
        wanted = one.evidence.text.encode()
        assert wanted in any_tokenizer.decode_bytes(ids[start:end])
        assert wanted not in any_tokenizer.decode_bytes(ids[start + 1 : end])
        assert wanted not in any_tokenizer.decode_bytes(ids[start : end - 1])


@pytest.mark.parametrize("chunks_read", [1000, 2], ids=["all", "some"])
def test_after_a_reader_only_parts_that_hold_evidence_are_tokenized_again(
    any_tokenizer: Tokenizer, chunks_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.tokens.BLOCK_CHARS", 200)
    pieces = [f"Line {n} of the tower says nothing." for n in range(100)]
    evidence = [Evidence(10, 0, 4, "Line"), Evidence(60, 5, 7, "60")]
    unread, context = Context(pieces), Context(pieces)
    for _ in islice(context.chunks(any_tokenizer, 40), chunks_read):
        pass
    encoded: list[str] = []
    encode = Tokenizer.encode

    def watched(tokenizer: Tokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode", watched)
    found = placed(context, evidence, any_tokenizer)
    again = [text for text in encoded if "tower" in text]
    assert found == placed(unread, evidence, any_tokenizer)
    whole = any_tokenizer.decode(any_tokenizer.encode(context.text()))
    assert all(one.evidence.text in whole for one in found)
    parts = list(any_tokenizer.parts(context.blocks()))
    if chunks_read > 100 and len(parts) > 2:
        assert len(again) == 2
    else:
        assert len(again) < len(parts) + 2


def test_without_evidence_nothing_is_read(any_tokenizer: Tokenizer) -> None:
    class Unread(list[str]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("read")

    assert placed(Context(Unread(["a"])), (), any_tokenizer) == ()


def test_a_chunk_holds_the_evidence_that_has_most_of_its_tokens_there(
    byte_tokenizer: Tokenizer,
) -> None:
    context = Context(["abcdefghij"])
    (one,) = place(context, [Evidence(0, 3, 8, "defgh")], byte_tokenizer).evidence
    assert [one.chunk(size) for size in (100, 6, 5, 4)] == [0, 0, 1, 1]
    assert place(context, [], byte_tokenizer).chunks(4) == 3
