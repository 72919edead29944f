"""Uuids in numbers are Python's own, and are measured as they are tokenized."""

from __future__ import annotations

import random
import uuid

import numpy as np

from core.tokens import Tokenizer
from tasks.haystack.measure import meter
from tasks.ruler.needles import BLOCK_LINES, NeedleLines, fill_with_needles
from tasks.ruler.uuids import draw_uuids, uuid_texts, uuid_tokens


def test_uuids_are_those_of_pythons_module() -> None:
    ours, theirs = random.Random(5), random.Random(5)
    texts = uuid_texts(draw_uuids(ours, 300))
    assert texts == [
        str(uuid.UUID(int=theirs.getrandbits(128), version=4)) for _ in range(len(texts))
    ]
    assert ours.getstate() == theirs.getstate()
    assert uuid_texts(draw_uuids(ours, 0)) == []


def test_tokens_are_the_sum_of_the_runs(any_tokenizer: Tokenizer) -> None:
    measure = meter(any_tokenizer)
    rows = draw_uuids(random.Random(6), 400)
    # Runs of every length, at every place: the longest is 12 letters after a hyphen.
    rows[:40] |= np.frombuffer(random.Random(7).randbytes(40 * 16), dtype=np.uint8).reshape(40, 16)
    rows[40] = 0xAB
    rows[41] = 0x11
    for _ in range(2):
        tokens = uuid_tokens(measure, rows)
        if tokens is None:
            assert measure.digits_together is None, "only where all digits stick together"
            return
        texts = uuid_texts(rows)
        assert tokens.tolist() == [any_tokenizer.count(f" {text}") for text in texts]


def test_digits_by_one_and_by_three_are_measured_fast(pocket: Tokenizer, qwen2: Tokenizer) -> None:
    for tokenizer, together in ((pocket, 3), (qwen2, 1)):
        assert meter(tokenizer).digits_together == together
        assert uuid_tokens(meter(tokenizer), draw_uuids(random.Random(1), 2)) is not None


def test_lines_are_counted_together_as_one_by_one(any_tokenizer: Tokenizer) -> None:
    measure = meter(any_tokenizer)
    texts = ["One.\n", "7 \n", "(a)\n", "\u6771\u4eac.\n", "-b w\n", "\U0001f3f0!\n"]
    assert measure.lines(texts).tolist() == [measure.line(text) for text in texts]
    assert measure.lines([]).tolist() == []


def test_lines_are_the_same_one_by_one_and_in_order(any_tokenizer: Tokenizer) -> None:
    measure = meter(any_tokenizer)
    lines, tokens = fill_with_needles(
        random.Random(2), "words", "uuids", 400_000, ("big-cat",), measure, least=1
    )
    assert isinstance(lines, NeedleLines)
    assert len(lines) > BLOCK_LINES, "more than are drawn at once"
    assert list(lines) == [lines.line(i) for i in range(len(lines))]
    assert sum(measure.line_once(f"{line}\n") for line in lines) == tokens <= 400_000
