"""The page of a run: one HTML file that needs nothing else, from templates/page.html.

Everything that a model, a document or a server wrote is escaped by the template engine, or lies in
the explorer's inert blocks; the page's own policy forbids all scripts but the explorer's, and
anything from elsewhere.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from reports.causes.cause import MEANINGS
from reports.causes.survey import Survey
from reports.explorer.page import STATIC, Explorer, digest
from reports.figures.style import Rendered
from reports.labels import Series, length_label, model_label, percent
from reports.page.verdict import verdict
from reports.run.data import RunData
from reports.run.matching import how_timed
from reports.run.published import Comparison, PublishedRow, by_cell, lengths_of
from reports.statistics.paired import PairedTest
from reports.tables.accuracy import wide_rows
from reports.tables.differing import SHOWN, differing_in_words
from reports.tables.efficiency import efficiency_rows
from reports.tables.paired import (
    SIGNIFICANT,
    p_number,
    p_value,
    pair_count,
    paired_rows,
    points,
)
from reports.tables.smallest import of_accuracy, of_pairs, of_unpaired
from tasks.scoring import PROFILES

TEMPLATES = Path(__file__).resolve().parent / "templates"
LONGEST_TEXT = 1500
"""Characters of a reply or an error that the page shows."""


@dataclass(frozen=True, slots=True)
class PageParts:
    """What a page is made of. `compared_with` is the reference of the paired `tests`, by
    profile; `figures` go by their names; `reference` is the papers' curves; `survey` is why
    samples failed."""

    run: RunData
    compared_with: Series
    tests: Mapping[str, Sequence[PairedTest]]
    figures: tuple[Rendered, ...]
    reference: Rendered | None
    comparisons: tuple[Comparison, ...]
    reference_rows: tuple[PublishedRow, ...]
    survey: Survey
    explorer: Explorer


def page_html(parts: PageParts) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, STATIC]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _filters(parts.run)
    run, explorer = parts.run, parts.explorer
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8") + explorer.css
    return environment.get_template(
        "page.html"
    ).render(
        run=run,
        explorer=explorer,
        css=Markup(css),  # our own files, and the policy allows these very texts only
        script=Markup(explorer.script),
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest(css)}'; "
        f"{explorer.script_policy}; base-uri 'none'; form-action 'none'",
        title=" · ".join(dict.fromkeys([str(run.settings.get("suite") or "Run"), run.name])),
        models=_models(run),
        verdict=verdict(run),
        figures={figure.name: figure for figure in parts.figures},
        reference=parts.reference,
        survey=parts.survey,
        meanings=MEANINGS,
        averages=[row for row in parts.reference_rows if not lengths_of(row.length)],
        comparisons=by_cell(parts.comparisons),
        exhibits=list(dict.fromkeys((c.row.source, c.row.exhibit) for c in parts.comparisons)),
        looks=run.looks(),
        compared_with=parts.compared_with,
        paired={profile: paired_rows(run, tests) for profile, tests in parts.tests.items()},
        tests_count=max(map(len, parts.tests.values()), default=0),
        smallest=of_accuracy(run),
        smallest_published=of_unpaired({c.ours.clusters for c in parts.comparisons}),
        smallest_paired={profile: of_pairs(tests) for profile, tests in parts.tests.items()},
        clustered=any(cell.clusters for cell in run.cells),
        differing=run.differing[:SHOWN],
        differing_in_words=differing_in_words(run),
        significant=SIGNIFICANT,
        efficiency=efficiency_rows(run),
        timed=how_timed(run.sessions),
        wide={profile: wide_rows(run, profile) for profile in PROFILES},
        totals=_totals(run),
        counted=any(cell.counts for cell in run.cells),
        demonstrations=[m for m in _models(run) if run.model(m).get("demonstration")],
        settings=_sections(run.settings),
        sessions=[(session, list(_flat(session))) for session in run.sessions],
        commands=_commands(run),
    )


def _filters(run: RunData) -> dict[str, Callable[..., object]]:
    """What the templates write numbers and names with."""
    return {
        "in_tokens": length_label,
        "percent": percent,
        "method": run.method_label,
        "model": model_label,
        "short": shortened,
        "marked": marked,
        "data_uri": _data_uri,
        "amount": _amount,
        "usd": _usd,
        "moment": _moment,
        "signed": _signed,
        "points": points,
        "p_value": p_value,
        "p_number": p_number,
        "pair_count": pair_count,
    }


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """The text, with its middle left out if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} […{len(text) - 2 * half:,} characters…] {text[-half:]}"


def marked(text: str, golds: Sequence[str]) -> Markup:
    """Text, escaped, with the gold strings in it marked (upper and lower case alike)."""
    wanted = sorted((gold for gold in golds if gold.strip()), key=len, reverse=True)
    if not wanted:
        return escape(text)
    pattern = "(" + "|".join(re.escape(gold) for gold in wanted) + ")"
    # re.split gives the text between golds at even places, the golds at odd ones.
    pieces = re.split(pattern, text, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(pieces)
    )


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _amount(number: float) -> str:
    """A mean for the ledger: 12,345 or 3.25; a dash where there is none."""
    if number != number:  # NaN: no sample ended well
        return "–"
    return f"{number:,.0f}" if number >= 100 else f"{number:,.2f}".rstrip("0").rstrip(".")


def _usd(amount: float | None) -> str:
    """US dollars for the ledger; a dash where no prices were given."""
    return "–" if amount is None else f"{amount:,.4f}"


def _signed(points: float) -> str:
    """A difference in percentage points, with its sign."""
    return f"{points:+.1f}".replace("-", "−")


def _moment(iso: str) -> str:
    """2026-11-20T19:00:00.123+00:00 -> 2026-11-20 19:00 UTC; other text stays as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*(Z|\+00:00)", iso)
    return f"{found[1]} {found[2]} UTC" if found else iso


def _models(run: RunData) -> list[str]:
    return list(dict.fromkeys(series.model for series in run.all_series))


def _totals(run: RunData) -> dict[str, int | None]:
    """Sums over all cells; None where a cell does not know."""
    names = ("asked", "finished", "owed", "ok", "failed", "cut_samples", "cut_turns", "unparsed")
    totals: dict[str, int | None] = {}
    for name in names:
        values = [getattr(cell, name) for cell in run.cells]
        totals[name] = None if None in values else sum(values)
    return totals


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as (dotted name, text) rows."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{name}.")
        else:
            yield name, _plain(key, item)


def _plain(key: str, value: object) -> str:
    """One setting as a reader sees it."""
    if value is None or value == {} or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return shlex.join(map(str, value)) if key == "command" else ", ".join(map(str, value))
    return str(value)


def _sections(settings: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The settings as titled tables: plain values first, then one a group, one a model. The
    cells are left out: the ledger lists them."""
    settings = {key: value for key, value in settings.items() if key != "cells"}
    plain = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    sections = [("Run", list(_flat(plain)))] if plain else []
    for key, group in settings.items():
        if not isinstance(group, Mapping) or not group:
            continue
        if key == "models":
            entries = ((n, m if isinstance(m, Mapping) else {"entry": m}) for n, m in group.items())
            sections += [(f"Model {name}", list(_flat(model))) for name, model in entries]
        else:
            sections.append((key.capitalize(), list(_flat(group))))
    return sections


def _commands(run: RunData) -> list[str]:
    """The commands that made the run, or each of its runs, as a shell takes them; a resumed
    run has the same one again."""
    given = [session.get("command") for session in run.sessions]
    texts = [_shell(command) for command in given if command]
    if texts:
        return list(dict.fromkeys(texts))
    suite, seed = run.settings.get("suite"), run.settings.get("seed")
    parts = ["run.py", "sweep", str(suite or "SUITE")]
    return [_shell([*parts, "--seed", str(seed)] if seed is not None else parts)]


def _shell(command: object) -> str:
    if not isinstance(command, list):
        return str(command)
    prefix = "python " if str(command[0]).endswith(".py") else ""
    return prefix + shlex.join(map(str, command))
