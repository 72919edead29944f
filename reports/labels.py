"""How things are called and coloured in figures, tables and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARIANT_LABELS: Mapping[str, str] = {"exit_gate=false": "w/o EG", "exit_gate=true": "w/ EG"}
"""Settings in a method's name that the papers have a word for."""

METHOD_LABELS: Mapping[str, str] = {
    "memagent": "MemAgent",
    "gru_mem": "GRU-Mem",
    "full_context": "Full context",
    "retrieval": "Retrieval",
}

PROFILES = ("strict", "published")
"""Both ways to score. `strict` leads: it is the one that the project stands behind."""

# Okabe and Ito's colours, safe for colour-blind readers, then darker and lighter relatives.
# A method keeps to its side of the palette, so that families can be told apart at a glance.
PALETTES: Mapping[str, tuple[str, ...]] = {
    "memagent": ("#0072B2", "#56B4E9", "#332288", "#44AA99"),
    "full_context": ("#D55E00", "#E69F00", "#882255", "#CC79A7", "#661100", "#999933"),
    "gru_mem": ("#009E73", "#117733", "#88CC66"),
}
OTHER_PALETTE = ("#555555", "#AA4499", "#997700")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True)
class Series:
    """A method on a model: one line of a figure, one row of a table."""

    method: str
    model: str


@dataclass(frozen=True, slots=True)
class Look:
    """How a series is drawn everywhere."""

    label: str
    colour: str
    marker: str
    dash: str


def base_method(method: str) -> str:
    """A method's name without the settings that it may go on with."""
    return method.partition("@")[0]


def method_label(method: str) -> str:
    """`full_context` -> `Full context`, `gru_mem@exit_gate=false` -> `GRU-Mem w/o EG`; what is
    not known stays as it is."""
    base, _, settings = method.partition("@")
    words = ", ".join(VARIANT_LABELS.get(part, part) for part in settings.split(","))
    return f"{METHOD_LABELS.get(base, base)} {words}".rstrip()


def looks(all_series: Sequence[Series]) -> dict[Series, Look]:
    """A look for each series, the same for the same run. The label leaves out what all of
    them share: with one model it is the method, with one method it is the model."""
    one_model = len({s.model for s in all_series}) == 1
    one_method = len({s.method for s in all_series}) == 1
    seen: dict[str, int] = {}
    result = {}
    for series in all_series:
        base = base_method(series.method)
        rank = seen.get(base, 0)
        seen[base] = rank + 1
        palette = PALETTES.get(base, OTHER_PALETTE)
        method = method_label(series.method)
        both = f"{series.model} · {method}"
        label = method if one_model else series.model if one_method else both
        result[series] = Look(
            label,
            palette[rank % len(palette)],
            MARKERS[rank % len(MARKERS)],
            DASHES[rank // len(palette) % len(DASHES)],
        )
    return result


def length_label(tokens: int) -> str:
    """1024 -> 1K, 65536 -> 64K, 1000000 and 1048576 -> 1M, 3500000 -> 3.5M.

    Round decimal numbers are read as decimal, all others as binary: 448000 and 458752 are
    both 448K. What is round in neither way is written out: 1234 -> 1,234.
    """
    decimal = ((10**6, "M", 4), (10**3, "K", 1))
    binary = ((2**20, "M", 4), (2**10, "K", 2), (10**3, "K", 2))
    for unit, letter, parts in decimal + binary:
        if tokens >= unit and tokens * parts % unit == 0:
            return f"{tokens / unit:g}{letter}"
    return f"{tokens:,}"


def percent(share: float, digits: int = 0) -> str:
    """0.9375 -> 94 (or 93.8), halves upwards. Only a perfect score is written 100, only a
    zero is written 0."""
    scale = 10**digits
    units = math.floor(100 * share * scale + 0.5)
    if share < 1.0:
        units = min(units, 100 * scale - 1)
    if share > 0.0:
        units = max(units, 1)
    return f"{units / scale:.{digits}f}"


def compact(number: float) -> str:
    """A count for an axis or a tile: 0.1, 9.5, 950, 1.2K, 68K, 3.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= unit:
            return (
                f"{number / unit:.{0 if abs(number) >= 10 * unit else 1}f}".removesuffix(".0")
                + letter
            )
    return f"{number:.{0 if abs(number) >= 100 else 1}f}".removesuffix(".0")
