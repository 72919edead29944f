"""Where a text may be cut so that its parts' tokens are the whole text's.

A cut stands between a visible character and a space, or between a line's one newline and a
visible character. No rule of the supported pre-tokenizers matches across such a place, whatever
stands around it, so each side is encoded as it is within the whole. `SPLIT_PROBE` is the text on
which a tokenizer shows that this holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from core.types import Known

SPLIT_PROBE = (  # the kinds of neighbours that a space can have
    "The cat's 12345 (dogs), it'll 3.14!\n\n x  y\t z\r\n é ß 東京 タワー. 🙂🙂 ok?  \n end -a _b "
    "<|c|> \"q\" 'r' A1 1A ... !!! \u0301e  \u00a0w \u200dj /* c */ def f(x):\n    return x  # no"
    "\none\n(2)\n3.\n\u6771\n- b"
)

_CANDIDATE = re.compile(r"\S(?= )|\n(?=\S)")


def is_cut(text: str, p: int) -> bool:
    """Whether `text` may be cut before its character `p`."""
    return _is_space_cut(text, p) or _is_newline_cut(text, p)


def last_cut(text: str, start: int, end: int) -> int | None:
    """The last place to cut in (start, end), at a space if there is one."""
    p = text.rfind(" ", start + 1, end)
    while p > start:
        if _is_space_cut(text, p):
            return p
        p = text.rfind(" ", start + 1, p)
    p = text.rfind("\n", start, end - 1)
    while p >= start:
        if p + 1 > start and _is_newline_cut(text, p + 1):
            return p + 1
        p = text.rfind("\n", start, p)
    return None


def first_cut(text: str, start: int) -> int | None:
    """The first place to cut after `start`."""
    for match in _CANDIDATE.finditer(text, max(start - 1, 0)):
        p = match.start() + 1
        if p > start and is_cut(text, p):
            return p
    return None


def _is_space_cut(text: str, p: int) -> bool:
    return text[p] == " " and not text[p - 1].isspace()


def _is_newline_cut(text: str, p: int) -> bool:
    # A slash after a newline joins it in o200k's rules.
    alone = p > 1 and text[p - 1] == "\n" and not text[p - 2].isspace()
    return alone and not text[p].isspace() and text[p] != "/"


@dataclass(frozen=True, slots=True)
class Inner:
    """Characters [start, end) of a text, both of them cuts, and their ids."""

    start: int
    end: int
    ids: Sequence[int]


def inner(known: Known, bytes_of: Mapping[int, bytes]) -> Inner | None:
    """The longest part of a known text between two cuts; None where there is none, or where the
    ids turn out not to be the text's.

    The first and the last ids of a chunk may be parts of words, or of characters, that lie
    outside it: what stands before the first cut and after the last must be encoded anew.
    """
    text, ids = known.text, known.ids
    start = first_cut(text, 0)
    end = None if start is None else last_cut(text, start, len(text))
    if start is None or end is None:
        return None
    data = known.data
    if data is None:
        data = b"".join(map(bytes_of.get, ids, repeat(b"")))
    # The bytes of a character that the first id only ends are the text's, and not the ids'.
    torn = len(data) - len(data.lstrip(_CONTINUATION)) if data[:1] in _CONTINUES else 0
    before = len(text[0].encode(errors="replace")) - torn if torn else 0
    from_byte = len(text[:start].encode(errors="replace")) - before
    part = text[start:end].encode(errors="replace")
    to_byte = from_byte + len(part)
    if from_byte < 0 or data[from_byte:to_byte] != part:
        return None
    first = _ids_in((len(bytes_of.get(i, b"")) for i in ids), from_byte)
    last = _ids_in((len(bytes_of.get(i, b"")) for i in reversed(ids)), len(data) - to_byte)
    if first is None or last is None:
        return None
    return Inner(start, end, ids[first : len(ids) - last])


_CONTINUATION = bytes(range(0x80, 0xC0))
_CONTINUES = {bytes([byte]) for byte in _CONTINUATION}


def _ids_in(sizes: Iterable[int], total: int) -> int | None:
    """How many ids, of so many bytes each, make `total` bytes; None where one goes beyond."""
    count = 0
    for size in sizes:
        if total <= 0:
            break
        total -= size
        count += 1
    return count if total == 0 else None
