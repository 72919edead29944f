"""How things are called and coloured in figures, tables and pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.names import base_of, parse_name

# Okabe and Ito's colours, safe for colour-blind readers, then darker and lighter relatives.
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#56B4E9", "#E69F00", "#117733"),
    *("#332288", "#882255", "#88CC66"),
)
"""Of methods that name no colours of their own."""
EXITS = {"early": PALETTE[1], "exact": PALETTE[2], "late": PALETTE[0]}
"""Of readings that ended before, at and after the last evidence."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("-", "--", ":", "-.")


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


@dataclass(frozen=True, slots=True)
class MethodLook:
    """What a method says of itself, as a run's settings have it (`benchmarks.methods.described`).
    Methods of one `base` share `colours`. An agent carries a memory; what does not is what agents
    are compared with."""

    label: str
    base: str
    colours: tuple[str, ...] = ()
    is_agent: bool = False


Methods = Mapping[str, MethodLook]
"""By name, settings included."""


def methods_of(settings: Mapping[str, Any]) -> dict[str, MethodLook]:
    """The methods of a run, out of its settings."""
    return {
        name: MethodLook(
            label=_label(name, entry["label"], entry["variants"]),
            base=base_of(name),
            colours=tuple(entry["colours"]),
            is_agent=bool(entry["is_agent"]),
        )
        for name, entry in settings.get("methods", {}).items()
    }


def _label(name: str, label: str, variants: Mapping[str, str]) -> str:
    """`gru_mem@exit_gate=false` -> `GRU-Mem w/o EG`."""
    given = [f"{key}={value}" for key, value in parse_name(name).settings.items()]
    words = ", ".join(variants.get(one.lower(), one) for one in given)
    return f"{label} {words}".rstrip()


def look_of(method: str, known: Methods) -> MethodLook:
    """What is known of a method; of one that nothing is known of, its name in words."""
    return known.get(method) or MethodLook(method.replace("@", " ", 1), base_of(method))


def model_label(model: str) -> str:
    """`pocket@temperature=0,top_p=1` -> `pocket, greedy`; `pocket@temperature=0.43` -> `pocket,
    T=0.43`. What is no temperature stays as it is, but at temperature 0 it changes nothing."""
    if "@" not in model:
        return model
    name = parse_name(model)
    settings = dict(name.settings)
    temperature = settings.pop("temperature", None)
    if temperature is not None and float(temperature) == 0:
        return f"{name.base}, greedy"
    words = [f"T={temperature}"] if temperature is not None else []
    return ", ".join([name.base, *words, *(f"{key}={value}" for key, value in settings.items())])


def looks(all_series: Sequence[Series], known: Methods) -> dict[Series, Look]:
    """A look for each series, the same for the same run. The label leaves out what all of
    them share: with one model it is the method, with one method it is the model. A model with
    another sampling has the model's colour, and a dash and a marker of its own."""
    one_model = len({s.model for s in all_series}) == 1
    one_method = len({s.method for s in all_series}) == 1
    hues: dict[str, dict[tuple[str, str], int]] = {}
    drawn: Counter[str] = Counter()
    samplings: Counter[tuple[str, str]] = Counter()
    result = {}
    for series in all_series:
        own = look_of(series.method, known)
        group = own.base if own.colours else ""
        palette = own.colours or PALETTE
        line = series.method, base_of(series.model)
        hue = hues.setdefault(group, {}).setdefault(line, len(hues[group]))
        method, model = own.label, model_label(series.model)
        both = f"{model} · {method}"
        result[series] = Look(
            method if one_model else model if one_method else both,
            palette[hue % len(palette)],
            MARKERS[drawn[group] % len(MARKERS)],
            DASHES[(hue // len(palette) + samplings[line]) % len(DASHES)],
        )
        drawn[group] += 1
        samplings[line] += 1
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


def span(counts: Iterable[int]) -> str:
    """8 and 8 -> `8`; 32, 8 -> `8 to 32`."""
    found = sorted({*counts})
    return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def compact(number: float) -> str:
    """A count for an axis or a tile: 0.1, 9.5, 950, 1.2K, 68K, 3.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= unit:
            return (
                f"{number / unit:.{0 if abs(number) >= 10 * unit else 1}f}".removesuffix(".0")
                + letter
            )
    return f"{number:.{0 if abs(number) >= 100 else 1}f}".removesuffix(".0")
