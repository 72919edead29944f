"""One sample in words: its question and gold, and where each piece of evidence stands.

The context is read as a stream and shown around the evidence only, so that a haystack of
millions of tokens can be looked at like a small one.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.context import Context
from core.tokens import Tokenizer
from core.types import Evidence, Sample

AROUND_CHARS = 160
"""Characters that are shown on each side of a piece of evidence, and at both ends."""

SHOWN = 20
"""Pieces of evidence that are listed; some tasks have hundreds."""

VALUE_CHARS = 200
LABEL = 11
LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most: tokens that it can be cut into."""

MARK_ON, MARK_OFF = "\x1b[1;7m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of evidence stands.

    `start`, `end`: characters of the whole text. `token`: number of whole tokens of the
    stripped context before it, `chunk` the chunk that this token is in, both from 0. `depth`:
    share of the text's characters before it.
    """

    evidence: Evidence
    start: int
    end: int
    token: int
    chunk: int
    depth: float


@dataclass(frozen=True, slots=True)
class Placed:
    """All places of a sample, with the size of its context."""

    places: tuple[Place, ...]
    tokens: int
    chunks: int
    characters: int


def place_evidence(
    context: Context, evidence: Sequence[Evidence], tokenizer: Tokenizer, chunk_tokens: int
) -> Placed:
    """Finds each piece of evidence among the tokens, in one pass over them.

    `chunk_tokens`: tokens of a chunk, as an agent would be given them.
    """
    spans = [context.locate(one) for one in evidence]
    characters = context.characters()
    wanted = sorted(
        zip(_in_tokenized_text(context, evidence, tokenizer), range(len(spans)), strict=True)
    )
    found: dict[int, int] = {}
    tokens = chunks = bytes_of_ids = bytes_of_text = 0
    tail: list[int] = []
    for chunk in context.chunks(tokenizer, chunk_tokens):
        # A character that the edge cuts is in this chunk's text, its first bytes before it.
        ids = [*tail, *chunk.ids]
        first = tokens - len(tail)
        first_byte = bytes_of_ids - len(tokenizer.decode_bytes(tail))
        while wanted and wanted[0][0] < chunk.end:
            place, number = wanted.pop(0)
            target = bytes_of_text + len(chunk.text[: max(place - chunk.start, 0)].encode())
            found[number] = first + _whole_tokens_before(ids, target - first_byte, tokenizer)
        bytes_of_text += len(chunk.text.encode())
        bytes_of_ids += len(tokenizer.decode_bytes(chunk.ids))
        tokens += len(chunk.ids)
        chunks = chunk.index + 1
        tail = ids[-LONGEST_CHARACTER:]
    for _, number in wanted:  # white space at the end, which the tokens leave out
        found[number] = max(tokens - 1, 0)
    places = tuple(
        Place(
            one,
            start,
            end,
            found[number],
            found[number] // chunk_tokens,
            start / max(characters, 1),
        )
        for number, (one, (start, end)) in enumerate(zip(evidence, spans, strict=True))
    )
    return Placed(places, tokens, chunks, characters)


def _in_tokenized_text(
    context: Context, evidence: Sequence[Evidence], tokenizer: Tokenizer
) -> list[int]:
    """Where each piece of evidence starts in the text that the tokens spell: stripped, and
    composed if the tokenizer does that."""
    composes = tokenizer.decode(tokenizer.encode("e\u0301")) == "\u00e9"

    def size(text: str) -> int:
        return len(unicodedata.normalize("NFC", text)) if composes else len(text)

    by_piece: dict[int, list[int]] = {}
    for number, one in enumerate(evidence):
        by_piece.setdefault(one.piece, []).append(number)
    starts = [0] * len(evidence)
    before = lead = 0
    started = False
    for number, piece in enumerate(context.pieces):
        if not started:
            lead += len(piece) - len(piece.lstrip())
            started = bool(piece.strip())
            lead += 0 if started else len(context.separator)
        for wanted in by_piece.get(number, ()):
            starts[wanted] = before + size(piece[: evidence[wanted].start])
        before += size(piece) + len(context.separator)
    return [max(start - lead, 0) for start in starts]


def _whole_tokens_before(ids: Sequence[int], size: int, tokenizer: Tokenizer) -> int:
    """How many of `ids` end at or before byte `size`."""
    total = 0
    for count, token in enumerate(ids):
        total += len(tokenizer.decode_bytes([token]))
        if total > size:
            return count
    return len(ids)


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
    placed = place_evidence(context, sample.evidence, tokenizer, chunk_tokens)
    every = "each is wanted" if sample.match == "all" else "one of them is enough"
    yield f"{'task':{LABEL}}{sample.task}: {summary}"
    yield f"{'sample':{LABEL}}index {sample.index}, id {sample.id}"
    yield (
        f"{'context':{LABEL}}{placed.tokens:,} tokens of {Path(tokenizer.name).name}, "
        f"{placed.characters:,} characters, {len(context.pieces):,} pieces, "
        f"{placed.chunks:,} chunks of {chunk_tokens:,} tokens"
    )
    yield f"{'question':{LABEL}}{_plain(sample.problem.question)}"
    yield f"{'golds':{LABEL}}{_plain(' | '.join(sample.golds))} ({every})"
    for key, value in sample.meta.items():
        yield f"{'meta':{LABEL}}{key} = {_short(json.dumps(value, ensure_ascii=False))}"
    yield ""
    yield from _table(placed.places)
    yield ""
    yield from _context(context, placed, marks)


def _table(places: Sequence[Place]) -> Iterator[str]:
    if not places:
        yield "evidence   none is known for this sample"
        return
    yield "evidence    piece      characters            token  chunk  depth  text"
    for place in places[:SHOWN]:
        span = f"{place.start:,}-{place.end:,}"
        yield (
            f"{place.evidence.piece:>17,}  {span:>20} {place.token:>12,} {place.chunk:>6,} "
            f"{place.depth:>6.1%}  {_short(_plain(place.evidence.text), 80)}"
        )
    if len(places) > SHOWN:
        yield f"           ... and {len(places) - SHOWN:,} more"


def _context(context: Context, placed: Placed, marks: bool) -> Iterator[str]:
    size = placed.characters
    hidden = sorted((p.start, p.end) for p in placed.places[:SHOWN])
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
