"""Token counts of corpora, kept between runs in the user's cache folder.

To count a corpus's documents or words takes as long as to tokenize them, which is most of the
time of a first cell. So each count is made once a machine: an array of a corpus's counts is one
small file, named by a hash of what it depends on (corpus, tokenizer, the tokenizer's program).

Nothing depends on the file but time. It carries a checksum: one that is cut short, damaged or
of another size is counted anew and replaced. It is written beside its place and renamed, after
reading what other processes have added, so any number of them may share it. A folder that
cannot be written is not written.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from core.errors import UsageError
from core.tokens import Tokenizer

UNKNOWN = -1
BLOCK = 1 << 10
"""Texts are counted ahead so many at a time, and may be saved between."""

SAVE_AFTER_S = 0.25
"""Seconds of counting that a process that dies may lose; a save takes a hundredth of it."""

CHECKSUM_BYTES = hashlib.sha256().digest_size

Numbers = NDArray[np.int64]
Stored = NDArray[np.int32]


class RememberedCounts:
    """Token counts of `size` texts of a corpus, each counted when it is first asked for.

    `kind` says which texts they are and how they are counted, `fingerprint` is the corpus's.
    """

    def __init__(self, kind: str, fingerprint: str, size: int, tokenizer: Tokenizer) -> None:
        key = "\n".join(
            [kind, fingerprint, str(size), tokenizer.fingerprint, tokenizers.__version__]
        )
        folder = cache_folder()
        name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.counts"
        self._file = None if folder is None else folder / name
        self._unsaved_s = 0.0
        self._known = np.full(size, UNKNOWN, dtype=np.int32)
        self._add_saved()

    def of(self, numbers: Numbers, count: Callable[[list[int]], Sequence[int] | Numbers]) -> Stored:
        """Counts of the texts of these numbers; `count` is given those not known yet."""
        counts: Stored = self._known[numbers]
        if counts.min(initial=0) == UNKNOWN:
            started = time.perf_counter()
            unknown = np.unique(numbers[counts == UNKNOWN])
            self._known[unknown] = count(unknown.tolist())
            counts = self._known[numbers]
            self._unsaved_s += time.perf_counter() - started
            if self._unsaved_s > SAVE_AFTER_S:
                self._save()
        return counts

    def all(self, count: Callable[[list[int]], Sequence[int] | Numbers]) -> Stored:
        """Counts of all texts, kept if any was not known yet, however little time it took."""
        counts = self.of(np.arange(len(self._known)), count)
        if self._unsaved_s:
            self._save()
        return counts

    def complete(self, count: Callable[[list[int]], Sequence[int] | Numbers]) -> int:
        """Counts all texts that are not known yet, keeps the counts, and returns how many.

        Raises:
            UsageError: the counts cannot be kept.
        """
        unknown = np.flatnonzero(self._known == UNKNOWN)
        for first in range(0, len(unknown), BLOCK):
            self.of(unknown[first : first + BLOCK], count)
        self._save()
        if self._file is None or not self._file.is_file():
            raise UsageError(
                f"counts cannot be kept in {cache_folder()}: set XDG_CACHE_HOME to the path of a "
                "folder that can be written"
            )
        return len(unknown)

    def _add_saved(self) -> None:
        """Takes over what the file knows, if it is whole."""
        try:
            content = self._file.read_bytes() if self._file else b""
        except OSError:
            return
        checksum, body = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
        if len(body) == self._known.nbytes and checksum == hashlib.sha256(body).digest():
            # Both know the same count of a text, or one of them knows none.
            np.maximum(self._known, np.frombuffer(body, dtype="<i4"), out=self._known)

    def _save(self) -> None:
        self._unsaved_s = 0.0
        if self._file is None:
            return
        self._add_saved()
        body = self._known.astype("<i4", copy=False).tobytes()
        # A folder that cannot be written costs time and nothing else.
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent)
            partial = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(body).digest() + body)
                partial.replace(self._file)
            finally:
                partial.unlink(missing_ok=True)


def cache_folder() -> Path | None:
    """Where counts are kept: `longmem-bench` in $XDG_CACHE_HOME, else in ~/.cache. None for a
    user without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The standard wants relative paths ignored.
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "longmem-bench" / "token-counts"
