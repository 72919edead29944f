"""Where the gold facts of a sample stand: in a piece, in the whole text, among the tokens.

Three coordinate systems, each with a type of its own:

    Evidence    characters of one piece of the context: what a task writes
    TextSpan    characters of the whole text, pieces joined: what people and exports are shown
    TokenSpan   tokens of the stripped text, as an agent's chunks count them: what turns read

`placed` finds a sample's evidence in what its tokens spell. After a method read the context, only
the parts that hold evidence are tokenized again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.context import Context
from core.tokens import Tokenizer
from core.types import Evidence, TextSpan, TokenSpan


@dataclass(frozen=True, slots=True)
class Placed:
    """One piece of evidence in all coordinates. `depth`: share of the text's characters before
    it. `tokens` begins with the token that its first character is in and ends after the one that
    its last character is in; it is never empty."""

    evidence: Evidence
    characters: TextSpan
    tokens: TokenSpan
    depth: float

    def chunk(self, chunk_tokens: int) -> int:
        """The chunk that it is in, from 0; see `chunk_of`."""
        return chunk_of(self.tokens, chunk_tokens)


@dataclass(frozen=True, slots=True)
class Placement:
    """A sample's evidence, in the order of the sample, and the size of its context."""

    evidence: tuple[Placed, ...]
    tokens: int
    characters: int

    def chunks(self, chunk_tokens: int) -> int:
        """How many chunks an agent reads."""
        return -(-self.tokens // chunk_tokens)


def chunk_of(span: TokenSpan, chunk_tokens: int) -> int:
    """The chunk, from 0, that holds most of a span's tokens (the earlier of equals)."""
    first, last = span.start // chunk_tokens, (span.end - 1) // chunk_tokens

    def overlap(chunk: int) -> int:
        end = min(span.end, (chunk + 1) * chunk_tokens)
        return end - max(span.start, chunk * chunk_tokens)

    return max(range(first, last + 1), key=overlap)


def place(context: Context, evidence: Sequence[Evidence], tokenizer: Tokenizer) -> Placement:
    """Finds each piece of evidence among the tokens, and counts them."""
    found = placed(context, evidence, tokenizer)
    return Placement(found, context.count(tokenizer), context.characters())


def placed(
    context: Context, evidence: Sequence[Evidence], tokenizer: Tokenizer
) -> tuple[Placed, ...]:
    """Each piece of evidence, found among the tokens: a stream that ends behind the last piece."""
    if not evidence:
        return ()
    spans = [context.locate(one) for one in evidence]
    characters = max(context.characters(), 1)
    size = _spelled_size(tokenizer)
    starts, ends = _in_tokenized_text(context, evidence, size)
    tokens_at = _tokens_at([*starts, *ends], context, tokenizer, size)
    return tuple(
        Placed(one, span, TokenSpan(first, last + 1), span.start / characters)
        for one, span, first, last in zip(
            evidence, spans, tokens_at[: len(spans)], tokens_at[len(spans) :], strict=True
        )
    )


def _spelled_size(tokenizer: Tokenizer) -> Callable[[str], int]:
    """Characters that a text's tokens spell: composed ones, if the tokenizer composes."""
    if tokenizer.decode(tokenizer.encode("e\u0301")) == "\u00e9":
        return lambda text: len(unicodedata.normalize("NFC", text))
    return len


def _tokens_at(
    places: Sequence[int], context: Context, tokenizer: Tokenizer, size: Callable[[str], int]
) -> list[int]:
    """The token that each character is in. Characters are those of the text that the tokens spell;
    one behind its end is in the last token."""
    wanted = sorted(zip(places, range(len(places)), strict=True), reverse=True)
    found = [0] * len(places)
    tokens = characters = 0
    for part, part_tokens in context.sized_parts(tokenizer):
        if not wanted:
            break
        end = characters + size(part)
        if wanted[-1][0] < end:
            ids = tokenizer.encode(part)
            text = tokenizer.decode(ids)  # a part's tokens spell whole characters
            while wanted and wanted[-1][0] < end:
                place, number = wanted.pop()
                target = len(text[: place - characters].encode())
                found[number] = tokens + _whole_tokens_before(ids, target, tokenizer)
        characters = end
        tokens += part_tokens
    for _, number in wanted:  # white space at the end, which the tokens leave out
        found[number] = max(tokens - 1, 0)
    return found


def _in_tokenized_text(
    context: Context, evidence: Sequence[Evidence], size: Callable[[str], int]
) -> tuple[list[int], list[int]]:
    """First and last character of each piece of evidence in the text that the tokens spell:
    stripped, and composed if the tokenizer does that."""
    by_piece: dict[int, list[int]] = {}
    for number, one in enumerate(evidence):
        by_piece.setdefault(one.piece, []).append(number)
    starts, ends = [0] * len(evidence), [0] * len(evidence)
    before = lead = 0
    started = False
    for number, piece in enumerate(context.pieces):
        if not started:
            lead += len(piece) - len(piece.lstrip())
            started = bool(piece.strip())
            lead += 0 if started else len(context.separator)
        for wanted in by_piece.get(number, ()):
            one = evidence[wanted]
            starts[wanted] = before + size(piece[: one.start])
            ends[wanted] = before + max(size(piece[: one.end]) - 1, size(piece[: one.start]))
        before += size(piece) + len(context.separator)
    return [max(start - lead, 0) for start in starts], [max(end - lead, 0) for end in ends]


def _whole_tokens_before(ids: Sequence[int], size: int, tokenizer: Tokenizer) -> int:
    """How many of `ids` end at or before byte `size`."""
    total = 0
    for count, token in enumerate(ids):
        total += len(tokenizer.decode_bytes([token]))
        if total > size:
            return count
    return len(ids)
