"""One sample in words: its question and gold, and where each piece of evidence stands.

The context is read as a stream and shown around the evidence only, so that a haystack of
millions of tokens can be looked at like a small one.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.context import Context
from core.evidence import Placed, Placement, place
from core.tokens import Tokenizer
from core.types import Sample
from tasks.output.export import counted_and_reported

AROUND_CHARS = 160
"""Characters that are shown on each side of a piece of evidence, and at both ends."""

SHOWN = 20
"""Pieces of evidence that are listed; some tasks have hundreds."""

VALUE_CHARS = 200
LABEL = 11
MARK_ON, MARK_OFF = "\x1b[1;7m", "\x1b[0m"


def excerpts(context: Context, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """(start, text) of each span [start, end) of the whole text; spans ascend and are apart."""
    rest = list(spans)
    held: list[str] = []
    position = 0
    for number, piece in enumerate(context.pieces):
        text = piece if number == 0 else context.separator + piece
        while rest and rest[0][0] < position + len(text):
            start, end = rest[0]
            held.append(text[max(start - position, 0) : end - position])
            if end > position + len(text):
                break
            yield start, "".join(held)
            held = []
            rest.pop(0)
        position += len(text)
        if not rest:
            return
    if held:
        yield rest[0][0], "".join(held)


def describe(
    sample: Sample, summary: str, tokenizer: Tokenizer, chunk_tokens: int, *, marks: bool
) -> Iterator[str]:
    """The lines that `run.py tasks show` prints. `marks`: highlight the evidence with terminal
    codes. Control characters of the data are made visible, so that they steer no terminal."""
    context = sample.problem.context
    placed = place(context, sample.evidence, tokenizer)
    every = "each is wanted" if sample.match == "all" else "one of them is enough"
    yield f"{'task':{LABEL}}{sample.task}: {summary}"
    yield f"{'sample':{LABEL}}index {sample.index}, id {sample.id}"
    yield (
        f"{'context':{LABEL}}{placed.tokens:,} tokens of {Path(tokenizer.name).name}, "
        f"{placed.characters:,} characters, {len(context.pieces):,} pieces, "
        f"{placed.chunks(chunk_tokens):,} chunks of {chunk_tokens:,} tokens"
    )
    yield f"{'question':{LABEL}}{_plain(sample.problem.question)}"
    yield f"{'golds':{LABEL}}{_plain(' | '.join(sample.golds))} ({every})"
    for key, value in counted_and_reported(sample).items():
        yield f"{'meta':{LABEL}}{key} = {_short(json.dumps(value, ensure_ascii=False))}"
    yield ""
    yield from _table(placed.evidence, chunk_tokens)
    yield ""
    yield from _context(context, placed, marks)


def _table(places: Sequence[Placed], chunk_tokens: int) -> Iterator[str]:
    if not places:
        yield "evidence   none is known for this sample"
        return
    yield "evidence    piece      characters            token  chunk  depth  text"
    for one in places[:SHOWN]:
        span = f"{one.characters.start:,}-{one.characters.end:,}"
        yield (
            f"{one.evidence.piece:>17,}  {span:>20} {one.tokens.start:>12,} "
            f"{one.chunk(chunk_tokens):>6,} {one.depth:>6.1%}  "
            f"{_short(_plain(one.evidence.text), 80)}"
        )
    if len(places) > SHOWN:
        yield f"           ... and {len(places) - SHOWN:,} more"


def _context(context: Context, placed: Placement, marks: bool) -> Iterator[str]:
    size = placed.characters
    hidden = sorted((p.characters.start, p.characters.end) for p in placed.evidence[:SHOWN])
    windows = [(0, AROUND_CHARS), (size - AROUND_CHARS, size)]
    windows += [(start - AROUND_CHARS, end + AROUND_CHARS) for start, end in hidden]
    merged: list[tuple[int, int]] = []
    for start, end in sorted((max(s, 0), min(e, size)) for s, e in windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > start:
            merged.append((start, end))
    position = 0
    for start, text in excerpts(context, merged):
        if start > position:
            yield f"[... {start - position:,} characters ...]"
        yield _marked(text, start, hidden if marks else ())
        position = start + len(text)


def _marked(text: str, start: int, hidden: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for first, last in hidden:
        first, last = max(first - start, done), min(last - start, len(text))
        if first < last:
            parts += [_plain(text[done:first]), MARK_ON, _plain(text[first:last]), MARK_OFF]
            done = last
    return "".join([*parts, _plain(text[done:])])


def _plain(text: str) -> str:
    """Control characters but newline and tab become U+FFFD."""
    return "".join(
        "\ufffd" if unicodedata.category(char) == "Cc" and char not in "\n\t" else char
        for char in text
    )


def _short(text: str, limit: int = VALUE_CHARS) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= limit else f"{line[:limit]}... ({len(line):,} characters)"
