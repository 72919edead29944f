"""Where the tokens of a kept text stand, found in the one pass that counts them.

    RUN/text/tokens-FINGERPRINT.json   a list: tokens, lines and bytes of the text before each part
                                       that is tokenized by itself, and before its end

The fingerprint is the tokenizer's. With it the line of a token, and the text of a stretch, take no
more than tokenizing the parts that they are in again: the same in a text of any size.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from core.context import Context
from core.errors import UsageError
from core.files import write_whole
from core.tokens import Tokenizer
from core.types import TokenSpan

HELD_PARTS = 64
"""Parts whose ids are held, of those that were looked into last."""

Tell = Callable[[int, int], None]
"""Is told bytes and tokens of the text so far, part by part."""


class Start(NamedTuple):
    """What of the text is before a part."""

    tokens: int
    lines: int
    bytes: int


class TokenIndex:
    """Looks into a text file by its tokens. `starts`: of all parts in order, and of the end."""

    def __init__(self, text: Path, tokenizer: Tokenizer, starts: Sequence[Start]) -> None:
        self.tokens = starts[-1].tokens
        self._text, self._tokenizer, self._starts = text, tokenizer, starts
        self._firsts = [start.tokens for start in starts[:-1]]
        self._ids = lru_cache(HELD_PARTS)(self._encoded)

    @classmethod
    def of(cls, text: Path, context: Context, tokenizer: Tokenizer, tell: Tell) -> TokenIndex:
        """The index that is kept beside the text, made if there is none. `context` is all of the
        file, in pieces.

        Raises:
            UsageError: it cannot be read or written.
        """
        file = text.with_name(f"tokens-{tokenizer.fingerprint[:12]}.json")
        if not file.is_file():
            starts = list(_counted(context, tokenizer, tell))
            try:
                write_whole(file, json.dumps(starts))
            except OSError as error:
                raise UsageError(
                    f"{file}: cannot be kept there ({error.strerror}). Make room, or give another "
                    "--out."
                ) from error
            return cls(text, tokenizer, starts)
        try:
            found = [Start(*row) for row in json.loads(file.read_text(encoding="utf-8"))]
            return cls(text, tokenizer, found)
        except (OSError, ValueError, TypeError, IndexError) as error:
            raise UsageError(
                f"{file}: no index of tokens: {error}. Remove it; it is made again."
            ) from error

    def line(self, place: int) -> int:
        """The line of the text, from 0, that a token begins in."""
        number = self._part(place)
        start = self._starts[number]
        before = self._ids(number)[: place - start.tokens]
        return start.lines + self._tokenizer.decode_bytes(before).count(b"\n")

    def text(self, span: TokenSpan) -> str:
        """What a stretch of tokens spells."""
        ids: list[int] = []
        for number in range(self._part(span.start), self._part(span.end - 1) + 1):
            first = self._starts[number].tokens
            ids += self._ids(number)[max(span.start - first, 0) : span.end - first]
        return self._tokenizer.decode(ids)

    def _part(self, place: int) -> int:
        """The number of the part that a token is in."""
        if not 0 <= place < self.tokens:
            raise ValueError(f"{self._text}: got token {place}, it has {self.tokens}")
        return bisect_right(self._firsts, place) - 1

    def _encoded(self, number: int) -> list[int]:
        """The ids of a part."""
        start, end = self._starts[number].bytes, self._starts[number + 1].bytes
        with self._text.open("rb") as file:
            file.seek(start)
            return self._tokenizer.encode(file.read(end - start).decode())


def _counted(context: Context, tokenizer: Tokenizer, tell: Tell) -> Iterator[Start]:
    """The starts, each as soon as what is before it has been tokenized."""
    at = _leading(context)
    yield at
    for part, tokens in context.sized_parts(tokenizer):
        at = Start(at.tokens + tokens, at.lines + part.count("\n"), at.bytes + len(part.encode()))
        tell(at.bytes, at.tokens)
        yield at


def _leading(context: Context) -> Start:
    """The white space at the beginning, which the tokens leave out."""
    lines = size = 0
    for piece in context.pieces:
        body = piece.lstrip()
        blank = piece[: len(piece) - len(body)]
        lines, size = lines + blank.count("\n"), size + len(blank.encode())
        if body:
            break
    return Start(0, lines, size)
