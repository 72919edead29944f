"""Token counts of haystacks by addition: units that repeat are tokenized once a process.

Where a pre-tokenizer always splits, the ids of a text are the ids of its parts, one after the
other. Every task joins its units at such places: after a newline and before anything but white
space, or before a space that follows a visible character. So a prompt's length is the sum of
its units' lengths. What repeats is counted once and remembered; what is random is tokenized in
one pass over all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from core.errors import UsageError
from core.tokens import Tokenizer
from tasks.once import once

REMEMBERED = 1 << 17
"""Texts whose count is kept, so that memory does not grow with the number of samples."""

FOLLOWER = "T"
"""A visible character, for what comes after a line."""

LINE_PROBES = (".\n", "again.\n", "w\n", "7\n", ")\n\n", "a \n", "word.\n\n", "b \n\n", "\u6771\n")
SPACE_PROBES = ((".\n", " The"), ("A ", " The"), ("\n", " VAR"))
"""Places where lines that end with white space are joined by a space."""

START_PROBES = ("One", "7", "(a)", '"', "\u6771", "\u0301", "-", "<|x|>", "Document")

BEGINS_WITH_SPACE, HOLDS_NEWLINE = 1, 2
"""Kinds of tokens, as bits."""


class Meter:
    """Counts tokens of parts. One per tokenizer: `meter(tokenizer)`; threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._counts: dict[str, int] = {}
        self._kinds = np.empty(0, dtype=np.int8)
        self._growing = Lock()
        self._require_splits()

    def count(self, text: str) -> int:
        """Tokens of `text`, remembered."""
        known = self._counts.get(text)
        if known is None:
            if len(self._counts) >= REMEMBERED:
                self._counts.clear()
            known = self._counts[text] = len(self.tokenizer.encode(text))
        return known

    def count_once(self, text: str) -> int:
        """Tokens of a text that will not be asked for again."""
        return self.tokenizer.count(text)

    def line(self, text: str) -> int:
        """Tokens that `text`, which ends with a newline, takes before a visible character,
        remembered. GPT-2's rule for white space looks at what follows it: before a letter,
        two newlines are two tokens; at the end of a text they may be one."""
        return self.count(text + FOLLOWER) - self.count(FOLLOWER)

    def line_once(self, text: str) -> int:
        """`line` of a text that will not be asked for again."""
        return self.tokenizer.count(text + FOLLOWER) - self.count(FOLLOWER)

    def newline_after(self, word: str) -> int:
        """What a newline after ` word` adds to its tokens, before a visible character."""
        return self.line(f" {word}\n") - self.count(" " + word)

    def spaced(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text after a space, all counted in one pass over them joined.

        A space after a visible character begins a token, and no other token begins with one.
        So no text may have outer white space, or inner white space but single spaces.
        """
        ids = self._ids(" " + " ".join(texts))
        starts = np.flatnonzero(self._kinds_of(ids) & BEGINS_WITH_SPACE)
        firsts = list(accumulate((text.count(" ") + 1 for text in texts), initial=0))[:-1]
        return np.diff(starts[firsts], append=len(ids))

    def lines(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """`line` of each text, all counted in one pass over them joined. Each has its one
        newline at its end, and begins with a visible character or one space before such."""
        ids = self._ids("".join(texts) + FOLLOWER)
        ends = np.flatnonzero(self._kinds_of(ids) & HOLDS_NEWLINE)
        return np.diff(ends, prepend=-1)

    def _ids(self, text: str) -> NDArray[np.int64]:
        return np.fromiter(chain.from_iterable(self.tokenizer.stream([text])), dtype=np.int64)

    def _kinds_of(self, ids: NDArray[np.int64]) -> NDArray[np.int8]:
        """What each token's text begins with or holds; looked up once for each token."""
        with self._growing:
            more = int(ids.max(initial=-1)) + 1 - len(self._kinds)
            if more > 0:
                self._kinds = np.append(self._kinds, np.full(more, -1, dtype=np.int8))
            for token in set(ids[self._kinds[ids] < 0].tolist()):
                text = self.tokenizer.decode_bytes([token])
                self._kinds[token] = BEGINS_WITH_SPACE * (text[:1] == b" ")
                self._kinds[token] |= HOLDS_NEWLINE * (b"\n" in text)
            found: NDArray[np.int8] = self._kinds[ids]
            return found

    def _require_splits(self) -> None:
        bad = [pair for pair in SPACE_PROBES if not self.tokenizer.splits_between(*pair)]
        for left in LINE_PROBES:
            alone = self.tokenizer.pre_tokens(left + FOLLOWER)[:-1]
            bad += [
                (left, right)
                for right in START_PROBES
                if self.tokenizer.pre_tokens(left + right)
                != alone + self.tokenizer.pre_tokens(right)
            ]
        if bad or not self.tokenizer.splits_at_cuts:
            where = f"between {bad[0][0]!r} and {bad[0][1]!r}" if bad else "before a space"
            raise UsageError(
                f"tokenizer {self.tokenizer.name}: its pre-tokenizer does not always split "
                f"{where}, so haystacks cannot be measured by addition. Expected one that "
                "splits at line starts and before spaces (Qwen2, Llama 3 and GPT-2 do)."
            )


@once(4)
def meter(tokenizer: Tokenizer) -> Meter:
    """The tokenizer's meter, kept between samples."""
    return Meter(tokenizer)


def edge_tokens(meter: Meter, first: str, last: str) -> int:
    """What a context joined by spaces takes beside the sum of its pieces, each counted after
    a space: its first piece has none, and a newline follows its last."""
    return meter.count(first) - meter.count(" " + first) + meter.newline_after(last)
