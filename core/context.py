"""A haystack as a sequence of pieces, streamed as blocks of text and chunks of tokens."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from core.tokens import BLOCK_CHARS, Tokenizer
from core.types import Evidence, Known, TextSpan, TokenSpan


@dataclass(frozen=True, slots=True)
class Chunk:
    """`ids`: exactly `size` tokens of the whole text's tokenization (the last may be shorter).

    `text` starts and ends at whole characters: the bytes of a character that the edge cuts
    go to the later chunk. The texts of all chunks join to the whole text (NFC-normalized, if
    the tokenizer does that). `start`, `end`: its characters in that text. `tokens`: its place
    among the tokens of the whole text. `data`: the bytes of its ids.
    """

    index: int
    ids: Sequence[int]
    text: str
    start: int
    end: int
    tokens: TokenSpan
    data: bytes = field(repr=False)

    @property
    def known(self) -> Known:
        """The chunk for a message that holds its text: `Message("user", prompt, [chunk.known])`."""
        return Known(self.text, self.ids, self.data)


@dataclass(frozen=True, slots=True)
class Context:
    """Pieces joined by `separator`. Never one string unless `text()` is asked for.

    Pieces are any sequence of strings: a list, or a lazy one that renders on access.
    """

    pieces: Sequence[str]
    separator: str = "\n"
    _offsets: list[int] = field(default_factory=list, repr=False, compare=False)
    _sizes: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    def text(self) -> str:
        """The whole haystack as one string."""
        return self.separator.join(self.pieces)

    def blocks(self, *, stripped: bool = True) -> Iterator[str]:
        """The whole text in blocks of about BLOCK_CHARS; `stripped` of outer white space."""
        return _stripped(self._joined()) if stripped else self._joined()

    def _joined(self) -> Iterator[str]:
        pieces = iter(self.pieces)
        taken = 1
        before = ""
        while batch := list(islice(pieces, taken)):
            block = before + self.separator.join(batch)
            yield block
            before = self.separator
            # As many pieces as make a block, by the last ones, and at most twice as many.
            taken = min(max(BLOCK_CHARS * taken // (len(block) + 1), 1), 2 * taken)

    def tokens(self, tokenizer: Tokenizer) -> Iterator[list[int]]:
        """Ids of the whole text, a list a part (`Tokenizer.parts`). The parts' sizes are kept for
        `sized_parts`, as far as the reader goes."""
        sizes: list[int] = []
        try:
            for ids in tokenizer.stream(self.blocks()):
                sizes.append(len(ids))
                yield ids
        finally:
            # In one step at the end: two threads may read the same context.
            if len(sizes) > len(self._sizes.get(tokenizer.fingerprint, ())):
                self._sizes[tokenizer.fingerprint] = sizes

    def sized_parts(self, tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
        """The text in the parts that are tokenized by themselves, each with its number of tokens.
        What `tokens` went over before is not tokenized again."""
        known = self._sizes.get(tokenizer.fingerprint, [])
        for number, part in enumerate(tokenizer.parts(self.blocks())):
            yield part, known[number] if number < len(known) else len(tokenizer.encode(part))

    def count(self, tokenizer: Tokenizer) -> int:
        """Number of tokens of the whole text."""
        return sum(size for _, size in self.sized_parts(tokenizer))

    def chunks(self, tokenizer: Tokenizer, size: int) -> Iterator[Chunk]:
        """Cuts the whole text's tokens into consecutive chunks of `size` (PROTOCOL 1.1)."""
        if size < 1:
            raise ValueError(f"chunk size: got {size}, expected at least 1 token")
        ids: list[int] = []
        index = start = 0
        carry = b""

        def chunk(taken: Sequence[int], text: str, data: bytes) -> Chunk:
            first = index * size
            span = TokenSpan(first, first + len(taken))
            return Chunk(index, taken, text, start, start + len(text), span, data)

        for block_ids in self.tokens(tokenizer):
            ids += block_ids
            taken = 0
            while len(ids) - taken > size:
                now = ids[taken : taken + size]
                data = tokenizer.decode_bytes(now)
                text, carry = _whole_characters(carry + data)
                yield chunk(now, text, data)
                taken, index, start = taken + size, index + 1, start + len(text)
            del ids[:taken]
        if ids:
            data = tokenizer.decode_bytes(ids)
            yield chunk(ids, (carry + data).decode("utf-8", errors="replace"), data)

    def locate(self, evidence: Evidence) -> TextSpan:
        """Where `evidence` stands in the whole text."""
        if not self._offsets:
            self._offsets.extend(
                accumulate((len(p) + len(self.separator) for p in self.pieces), initial=0)
            )
        start = self._offsets[evidence.piece]
        return TextSpan(start + evidence.start, start + evidence.end)

    def characters(self) -> int:
        """Length of the whole text, in characters."""
        return sum(map(len, self.pieces)) + len(self.separator) * max(len(self.pieces) - 1, 0)


def keep_ends(token_lists: Iterable[list[int]], budget: int) -> tuple[list[int], list[int], int]:
    """Middle truncation of a stream of ids to `budget` tokens.

    Returns (head, tail, dropped): with nothing dropped, head + tail is the whole; else head
    is the first budget // 2 ids and tail the last budget // 2 (PROTOCOL 1.1 and 1.3).
    Memory is that of the budget, not of the stream.
    """
    if budget < 2:
        raise ValueError(f"token budget: got {budget}, expected at least 2")
    head: list[int] = []
    rest: deque[int] = deque()
    total = 0
    for ids in token_lists:
        total += len(ids)
        room = budget - len(head)
        if room > 0:
            head += ids[:room]
        rest.extend(ids[max(room, 0) :])
        while len(rest) > budget:
            rest.popleft()
    if total <= budget:
        return head, [], 0
    half = budget // 2
    tail = (head + list(rest))[-half:]
    return head[:half], tail, total - 2 * half


def _stripped(blocks: Iterable[str]) -> Iterator[str]:
    """Drops white space at the beginning of the first block and at the end of the last."""
    started = False
    held = ""
    for block in blocks:
        if not started:
            block = block.lstrip()
            if not block:
                continue
            started = True
        body = block.rstrip()
        if body:
            yield held + body
            held = block[len(body) :]
        else:
            held += block


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """Splits off an unfinished UTF-8 character at the end (3 bytes at most)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        if need > back:
            return data[:-back].decode("utf-8", errors="replace"), data[-back:]
        break
    return data.decode("utf-8", errors="replace"), b""


def is_normalized(text: str) -> bool:
    """Whether NFC leaves `text` as it is, so that `Chunk.start` counts its own characters."""
    return unicodedata.is_normalized("NFC", text)
