"""What a page needs to be explored: its script, its style and the data, in blocks that no text
from a model or a document can leave.

Scripts are plain modules under static/. A page that opens from disk cannot import modules, so
they are joined, in the order of MODULES, to one script; the policy allows that text alone. Data
are deflated and in base64, inside `<script type="text/plain">`, which browsers do not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.causes.diagnosed import Runs, rollout_of
from reports.explorer.chunks import Remaker
from reports.explorer.table import Table, packed
from reports.explorer.turns import EMBEDDED_CHARS, sample_turns

STATIC = Path(__file__).resolve().parent / "static"
MODULES = ("text", "diff", "table", "rows", "turn", "sample", "main")
"""Each imports only from those before it."""
TurnsChoice = Literal["all", "failures"] | int
"""Of which samples a page embeds the turns; a number: of so many, failures first."""
DEFAULT_TURNS: TurnsChoice = 24

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explorer:
    """`blocks`: element id -> data, for inert elements. `css`, `script`: for the page's head and
    end, word for word."""

    css: str
    script: str
    blocks: dict[str, str]
    report: str | None = None

    @property
    def script_policy(self) -> str:
        """What a Content-Security-Policy says of scripts."""
        return f"script-src 'sha256-{digest(self.script)}'"


def explorer_of(
    table: Table, turns: TurnsChoice = DEFAULT_TURNS, data: Path | None = None
) -> Explorer:
    """The explorer of a report, with all samples of the table as rows and the turns of some."""
    blocks = {"samples-data": packed(table.data())}
    remakers = remakers_of(table.runs, data)
    for number, indices in _chosen(table, turns).items():
        remaker = remakers[table.runs.places[number].run]
        for one in table.runs.diagnosed({number}, indices):
            if one.turns:  # an export has none
                index = rollout_of(one.row, one.cell)
                sample = sample_turns(one, remaker, EMBEDDED_CHARS)
                blocks[f"turns-{number}-{index}"] = packed(sample)
    return Explorer(style(), script(), blocks)


def _chosen(table: Table, turns: TurnsChoice) -> dict[int, set[int]]:
    """The samples whose turns are embedded, by cell: failures first, the cells taking turns."""
    kinds: tuple[dict[int, list[int]], ...] = ({}, {})
    for number, block in table.blocks.items():
        for index, cause, count in zip(
            *(block.get(name, ()) for name in ("index", "cause", "turns")), strict=True
        ):
            if count:
                kinds[not cause].setdefault(number, []).append(index)
    wanted = [*_in_turns(kinds[0]), *([] if turns == "failures" else _in_turns(kinds[1]))]
    chosen: dict[int, set[int]] = {}
    for number, index in wanted[: turns if isinstance(turns, int) else None]:
        chosen.setdefault(number, set()).add(index)
    return chosen


def _in_turns(groups: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """(cell, index) of the first of each cell, then of the second, and so on."""
    for place in range(max(map(len, groups.values()), default=0)):
        for number, indices in groups.items():
            if place < len(indices):
                yield number, indices[place]


def remakers_of(runs: Runs, data: Path | None) -> list[Remaker]:
    """What makes contexts again, for each of the runs."""
    return [
        Remaker(settings, sessions, data, run)
        for settings, sessions, run in zip(runs.each, runs.sessions, runs.paths, strict=True)
    ]


def live_page(name: str, report: str | None) -> str:
    """The page that a server shows: the same explorer, its data asked for as they come.
    `report`: the address of the report with the figures, if there is one."""
    environment = Environment(
        loader=FileSystemLoader(STATIC), autoescape=True, undefined=StrictUndefined
    )
    found = Explorer(style(), script(), {}, report)
    return environment.get_template("live.html").render(
        explorer=found,
        css=Markup(found.css),  # our own files, and the policy allows these very texts only
        script=Markup(found.script),
        title=name,
        policy="default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; "
        f"form-action 'none'; style-src 'sha256-{digest(found.css)}'; {found.script_policy}",
    )


@cache
def script() -> str:
    """All modules as one."""
    texts = [(STATIC / f"{name}.js").read_text(encoding="utf-8") for name in MODULES]
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def style() -> str:
    """The style sheet."""
    return (STATIC / "explorer.css").read_text(encoding="utf-8")


def digest(text: str) -> str:
    """A text's hash, as a Content-Security-Policy has it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
