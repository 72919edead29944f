"""Random uuids in numbers: drawn, measured and written thousands at a time.

Source: RULER, scripts/data/synthetic/niah.py (`uuid.UUID(int=rng.getrandbits(128), version=4)`).
Drawing here takes the same bits, so the uuids of a seed are those of Python's own module.

A uuid's tokens are those of its runs, between which the pre-tokenizer splits: letters stick
together, digits as many as it takes at a time (Qwen's one, Llama 3's three), and a hyphen or a
space stays with what follows it. Example: " 7ab34-c..." is " 7", "ab", "3", "4", "-c" with one
digit at a time. There are few runs, and each is counted once.

Runs are found four hexadecimal digits at a time: tables (`_Tables`) tell what any four do to
the run that is open before them.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.haystack.measure import REMEMBERED, Meter

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

UUID_LETTERS = 36
PARTS = (0, 8, 12, 16, 20, 32)
"""Hexadecimal digits at which the parts begin, between which hyphens stand, and their end."""

FOURS = 1 << 16
"""How many different four hexadecimal digits there are."""

HYPHEN, SPACE, BASE = 17, 18, 19
"""A run as a number to this base: 0 to f are 1 to 16, the hyphen or space before them 17 or 18."""

SHORT_RUNS = BASE**5
"""Runs below are looked up in an array; longer ones stand in every seventh uuid or so."""

ANY, LETTERS, DIGIT = 0, 1, 2
"""What sticks to an open run: digits and letters (it is empty, a hyphen or a space), letters, or
digits after one, after two, ..."""


def draw_uuids(rng: random.Random, count: int) -> Bytes:
    """`count` random uuids of version 4: a row of 16 bytes each, the first one first."""
    rows = np.frombuffer(rng.randbytes(16 * count), dtype=np.uint8).reshape(count, 16)
    rows = rows[:, ::-1].copy()
    rows[:, 6] = rows[:, 6] & 0x0F | 0x40
    rows[:, 8] = rows[:, 8] & 0x3F | 0x80
    return rows


def uuid_texts(rows: Bytes) -> list[str]:
    """The uuids as `str(uuid.UUID(...))` writes them."""
    digits = np.frombuffer(rows.tobytes().hex().encode(), dtype=np.uint8).reshape(len(rows), 32)
    letters = np.full((len(rows), UUID_LETTERS), ord("-"), dtype=np.uint8)
    for hyphens, (start, end) in enumerate(pairwise(PARTS)):
        letters[:, start + hyphens : end + hyphens] = digits[:, start:end]
    text = letters.tobytes().decode("ascii")
    return [text[start : start + UUID_LETTERS] for start in range(0, len(text), UUID_LETTERS)]


def uuid_tokens(meter: Meter, rows: Bytes) -> Numbers | None:
    """Tokens of each uuid, after a space and before a full stop; None if they are not the sum
    of its runs' with this tokenizer."""
    tables = _tables(meter)
    if tables is None:
        return None
    fours = np.ascontiguousarray(rows).view(">u2").T.astype(np.int64)
    first, ended = tables.follow(SPACE, fours[:2])
    last, more_ended = tables.follow(HYPHEN, fours[5:])
    tokens: Numbers = first + last
    for four in fours[2:5]:
        tokens += tables.alone[four]
    runs = np.array(ended + more_ended)  # counted together, the new ones in one pass
    tokens += tables.runs.of(runs.ravel()).reshape(runs.shape).sum(axis=0)
    return tokens


class _Runs:
    """Tokens of runs, counted when first asked for. The run 0 is none."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._known = {run: meter.count(_run_text(run)) for run in (0, HYPHEN, SPACE)}
        self._short = np.full(SHORT_RUNS, -1, dtype=np.int8)
        self._short[list(self._known)] = list(self._known.values())

    def of(self, runs: Numbers) -> NDArray[np.int8]:
        """Tokens of each run."""
        tokens: NDArray[np.int8] = self._short.take(runs, mode="clip")  # -1 for the long ones
        others = np.flatnonzero(tokens < 0)
        if len(others):
            if len(self._known) > REMEMBERED:  # most are long runs, of which there is no end
                self._known.clear()
            numbers = runs[others].tolist()
            self._count([run for run in set(numbers) if run not in self._known])
            tokens[others] = [self._known[run] for run in numbers]
        return tokens

    def _count(self, runs: list[int]) -> None:
        """All in one pass, a line each; a newline after letters or digits is a token."""
        counts = self._meter.lines([f"{_run_text(run)}\n" for run in runs]) - 1
        for run, tokens in zip(runs, counts.tolist(), strict=True):
            self._known[run] = tokens
            if run < SHORT_RUNS:
                self._short[run] = tokens


def _run_text(run: int) -> str:
    text = ""
    while run:
        run, symbol = divmod(run, BASE)
        text = "?0123456789abcdef- "[symbol] + text
    return text


class _Tables:
    """What four hexadecimal digits do to the open run before them, by kind * FOURS + four:

    lead, scale  the run becomes run * scale + lead,
    is_open      1 if it is open still after the four, 0 if it ended within or with them,
    inner        tokens of the runs that begin and end within the four,
    trail        the run that is open after the four, if another one than before,
    kind         what sticks to the run that is open after them.

    `begun[before]` is for each four after `before`: tokens that ended, the open run, its kind; and
    `alone` the tokens of each four between hyphens. `together` is how many digits the pre-tokenizer
    takes at a time.
    """

    def __init__(self, meter: Meter, together: int) -> None:
        self.runs = _Runs(meter)
        shape = (LETTERS + together, FOURS)
        kind = np.indices(shape)[0]
        run, lead, inner = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        scale = np.ones(shape, dtype=np.int64)
        first = np.ones(shape, dtype=bool)

        def end(where: NDArray[np.bool_]) -> None:
            np.copyto(lead, run, where=where & first)
            inner[where & ~first] += self.runs.of(run[where & ~first])
            run[where] = 0
            first[where] = False

        every_four = np.arange(FOURS)
        for shift in (12, 8, 4, 0):
            digit = (every_four >> shift) % 16
            decimal = digit < 10
            sticks = (kind == ANY) | np.where(decimal, kind >= DIGIT, kind == LETTERS)
            end(~sticks)
            run[:] = run * BASE + digit + 1
            scale[first] *= BASE
            kind[:] = np.where(decimal, np.maximum(kind * sticks, LETTERS) + 1, LETTERS)
            full = kind == LETTERS + together
            end(full)
            kind[full] = ANY
        self.lead = np.where(first, run, lead).ravel()
        self.scale = scale.ravel()
        self.is_open = first.astype(np.int64).ravel()
        self.inner = inner.ravel()
        self.trail = np.where(first, 0, run).ravel()
        self.kind = kind.ravel()
        self.begun: dict[int, tuple[Numbers, Numbers, Numbers]] = {}
        for before in (SPACE, HYPHEN):
            tokens, ended, run, kind = self._step(np.array(before), np.array(ANY), every_four)
            self.begun[before] = (tokens + self.runs.of(ended), run, kind)
        tokens, run, _ = self.begun[HYPHEN]
        self.alone = tokens + self.runs.of(run)

    def follow(self, before: int, fours: Numbers) -> tuple[Numbers, list[Numbers]]:
        """Tokens of parts of uuids with the space or hyphen before them, without those of the
        runs that are returned, too. `fours` is their digits: (fours of a part, parts)."""
        tokens, run, kind = (table[fours[0]] for table in self.begun[before])
        runs = []
        for four in fours[1:]:
            more, ended, run, kind = self._step(run, kind, four)
            tokens += more
            runs.append(ended)
        return tokens, [*runs, run]

    def _step(
        self, run: Numbers, kind: Numbers, four: Numbers
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Tokens within the four, the run that it ended, the one that is open after it, and
        what sticks to that."""
        at = kind * FOURS + four
        run = run * self.scale[at] + self.lead[at]
        is_open = self.is_open[at]
        return (
            self.inner[at],
            run * (1 - is_open),
            run * is_open + self.trail[at],
            self.kind[at],
        )


@lru_cache(maxsize=4)
def _tables(meter: Meter) -> _Tables | None:
    """The tables, if the pre-tokenizer splits wherever a run ends."""
    together = meter.digits_together
    if together is None:
        return None
    split = meter.tokenizer.splits_between
    digits = [before + "7" * count for before in ("", "-", " ") for count in range(1, together + 1)]
    letters = [before + one for before in ("", "-", " ") for one in ("b", "e", "deadbeef")]
    full = digits[together - 1 :: together]
    places = [(left, right) for left in digits for right in ("b", "e", "-0", "-b", ".\n")]
    places += [(left, right) for left in letters for right in ("0", "9", "-0", "-b", ".\n")]
    places += [(left, right) for left in full for right in ("0", "777")]
    return _Tables(meter, together) if all(split(*place) for place in places) else None
