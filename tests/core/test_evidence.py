"""Evidence among the tokens, for any tokenizer and any text."""

from __future__ import annotations

import pytest

from core.context import Context
from core.evidence import place
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


def test_a_chunk_holds_the_evidence_that_has_most_of_its_tokens_there(
    byte_tokenizer: Tokenizer,
) -> None:
    context = Context(["abcdefghij"])
    (one,) = place(context, [Evidence(0, 3, 8, "defgh")], byte_tokenizer).evidence
    assert [one.chunk(size) for size in (100, 6, 5, 4)] == [0, 0, 1, 1]
    assert place(context, [], byte_tokenizer).chunks(4) == 3
