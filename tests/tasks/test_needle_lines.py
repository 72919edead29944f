"""Needle lines: uuids are Python's own, lines are counted as they are tokenized."""

from __future__ import annotations

import random
import uuid

import pytest

from core.tokens import Tokenizer
from tasks.haystack.measure import meter
from tasks.ruler import needles
from tasks.ruler.needles import (
    Kind,
    LineKinds,
    draw_uuids,
    fill_with_needles,
    uuid_texts,
)


def test_uuids_are_those_of_pythons_module() -> None:
    ours, theirs = random.Random(5), random.Random(5)
    texts = uuid_texts(draw_uuids(ours, 300))
    assert texts == [
        str(uuid.UUID(int=theirs.getrandbits(128), version=4)) for _ in range(len(texts))
    ]
    assert ours.getstate() == theirs.getstate()
    assert uuid_texts(draw_uuids(ours, 0)) == []


def test_lines_are_counted_together_as_one_by_one(any_tokenizer: Tokenizer) -> None:
    measure = meter(any_tokenizer)
    texts = ["One.\n", "7 \n", "(a)\n", "\u6771\u4eac.\n", "-b w\n", "\U0001f3f0!\n"]
    assert measure.lines(texts).tolist() == [measure.line(text) for text in texts]
    assert measure.lines([]).tolist() == []


@pytest.mark.parametrize(("key", "value"), [("words", "uuids"), ("uuids", "numbers")])
def test_lines_fill_the_room_and_are_the_same_one_by_one_and_in_order(
    key: Kind, value: Kind, any_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needles, "BLOCK_LINES", 64)
    measure, room = meter(any_tokenizer), 20_000
    kinds = LineKinds(key, value, {"big-cat"})
    lines, ends = fill_with_needles(random.Random(2), kinds, room, measure, least=1)
    assert len(lines) > 64, "more than are drawn at once"
    assert list(lines) == [lines.line(i) for i in range(len(lines))]
    assert ends[-1] == any_tokenizer.count("\n".join([*lines, "T"])) - any_tokenizer.count("T")
    assert room - 150 < ends[-1] <= room


def test_the_least_number_of_lines_comes_whether_it_fits_or_not(byte_tokenizer: Tokenizer) -> None:
    for least in (1, 9, 40):
        kinds = LineKinds("words", "numbers")
        lines, ends = fill_with_needles(random.Random(1), kinds, 30, meter(byte_tokenizer), least)
        assert len(lines) == len(ends) == least
