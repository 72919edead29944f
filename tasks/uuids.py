"""Random uuids in numbers: drawn, measured and written thousands at a time.

Source: RULER, scripts/data/synthetic/niah.py (`uuid.UUID(int=rng.getrandbits(128), version=4)`).
Drawing here takes the same bits, so the uuids of a seed are those of Python's own module.

A uuid's tokens are those of its runs: where the pre-tokenizer splits digits one by one, only
letters stick together, after the hyphen or the space before them if there is one. Example,
" 7ab3-c..." is " ", "7", "ab", "3", "-c", ...; there are few short runs, and each is counted once.
"""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.measure import Meter

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

UUID_LETTERS = 36
HEXADECIMAL = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
DIGIT_PLACES = np.array([place for place in range(UUID_LETTERS) if place not in (8, 13, 18, 23)])

HYPHENS = (8, 12, 16, 20)
"""Hexadecimal digits before which a hyphen stands."""

LETTER, HYPHEN, SPACE, BASE = 1, 7, 8, 9
"""A run as a number to the base 9: a to f are 1 to 6, the hyphen or space before them 7 or 8."""

RUN_ENDS = 32 + len(HYPHENS) + 1
"""Places of a uuid where a run can end."""

SHORT_RUNS = BASE**6
"""Runs below are looked up in an array; longer ones stand in every tenth uuid or so."""


def draw_uuids(rng: random.Random, count: int) -> Bytes:
    """`count` random uuids of version 4: a row of 16 bytes each, the first one first."""
    rows = np.frombuffer(rng.randbytes(16 * count), dtype=np.uint8).reshape(count, 16)
    rows = rows[:, ::-1].copy()
    rows[:, 6] = rows[:, 6] & 0x0F | 0x40
    rows[:, 8] = rows[:, 8] & 0x3F | 0x80
    return rows


def uuid_texts(rows: Bytes) -> list[str]:
    """The uuids as `str(uuid.UUID(...))` writes them."""
    letters = np.full((len(rows), UUID_LETTERS), ord("-"), dtype=np.uint8)
    letters[:, DIGIT_PLACES] = HEXADECIMAL[_digits(rows)]
    text = letters.tobytes().decode("ascii")
    return [text[start : start + UUID_LETTERS] for start in range(0, len(text), UUID_LETTERS)]


def uuid_tokens(meter: Meter, rows: Bytes) -> Numbers | None:
    """Tokens of each uuid, after a space and before a full stop; None if they are not the sum
    of its runs' with this tokenizer."""
    counts = _run_tokens(meter)
    if counts is None:
        return None
    digits = np.ascontiguousarray(_digits(rows).T).astype(np.int64)
    is_digit = (digits < 10).astype(np.int64)
    letters = (digits - 10 + LETTER) * (1 - is_digit)
    ended = np.empty((RUN_ENDS, len(rows)), dtype=np.int64)
    ends = iter(ended)
    run = np.full(len(rows), SPACE, dtype=np.int64)
    for place in range(len(digits)):
        if place in HYPHENS:
            next(ends)[:] = run
            run[:] = HYPHEN
        # A digit ends the run, if there is one, and is a token of its own.
        done = np.multiply(run, is_digit[place], out=next(ends))
        run -= done
        run *= BASE
        run += letters[place]
    next(ends)[:] = run
    tokens: Numbers = counts.of(ended).sum(axis=0, dtype=np.int64) + is_digit.sum(axis=0)
    return tokens


def _digits(rows: Bytes) -> Bytes:
    """The 32 hexadecimal digits of each uuid."""
    return np.stack([rows >> 4, rows & 0x0F], axis=2).reshape(len(rows), 32)


class _Runs:
    """Tokens of runs, counted when first asked for. The run 0 is none."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._zero = meter.tokenizer.encode("0")[0]
        self._short = np.full(SHORT_RUNS, -1, dtype=np.int8)
        self._short[0] = 0
        self._long: dict[int, int] = {}

    def of(self, runs: Numbers) -> NDArray[np.int8]:
        """Tokens of each run."""
        long = np.flatnonzero(runs >= SHORT_RUNS)
        numbers = runs.ravel()[long].tolist()
        tokens = np.take(self._short, runs, mode="clip")
        if len(unknown := np.unique(runs[tokens < 0])):
            unknown = unknown[unknown < SHORT_RUNS]
            self._short[unknown] = self._counted(unknown.tolist())
            tokens = np.take(self._short, runs, mode="clip")
        if unseen := sorted({number for number in numbers if number not in self._long}):
            self._long |= dict(zip(unseen, self._counted(unseen), strict=True))
        tokens.ravel()[long] = [self._long[number] for number in numbers]
        return tokens

    def _counted(self, runs: list[int]) -> list[int]:
        """Counts of all the runs in one pass, each between two zeros."""
        text = "0" + "".join(f"{_run_text(run)}0" for run in runs)
        ids = np.array(self._meter.tokenizer.encode(text))
        return list((np.diff(np.flatnonzero(ids == self._zero)) - 1).tolist())


def _run_text(run: int) -> str:
    text = ""
    while run:
        run, symbol = divmod(run, BASE)
        text = " abcdef- "[symbol] + text
    return text


@lru_cache(maxsize=4)
def _run_tokens(meter: Meter) -> _Runs | None:
    """Counts of runs, if the pre-tokenizer splits around each digit and after each run."""
    split = meter.tokenizer.splits_between
    places = [
        (left + one, right)
        for left in ("", "7", "e", "-", " ", "-e", " e")
        for one in "0b"
        for right in ("0", "b", "-0", "-b", ".\n")
        if (one, right) != ("b", "b")
    ]
    places += [(before, digit) for before in ("-", " ", "7-", "b-") for digit in "09"]
    alone = meter.digit_tokens == 1 and len(meter.tokenizer.encode("0")) == 1
    return _Runs(meter) if alone and all(split(*place) for place in places) else None
