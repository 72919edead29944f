"""Grids as tables: long CSV for machines, wide Markdown and LaTeX (booktabs) for papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from reports.exhibits.grid import Column, Grid, Row, View, letter
from reports.exhibits.models import group_of
from reports.tables.markup import (
    RULE,
    latex_escape,
    latex_line,
    latex_table,
    markdown_escape,
    markdown_table,
)

WHOSE = {"published": "published", "ours": "measured", "difference": "difference"}


def csv_text(grids: Sequence[Grid]) -> str:
    """One row a square: the published number, ours with its interval and what it differs in."""
    return csv_of(
        _record(grid, row, column)
        for grid in grids
        for row in grid.rows
        for column in grid.columns
        if any((row.name, column.label) in grid.values(view) for view in grid.views)
    )


def csv_of(records: Iterable[Mapping[str, object]]) -> str:
    """A row a record, of the same names each."""
    text: str = pd.DataFrame(list(records)).to_csv(index=False, lineterminator="\n")
    return text


def _record(grid: Grid, row: Row, column: Column) -> dict[str, object]:
    place = row.name, column.label
    ours = grid.ours.get(place)
    series = row.series
    return {
        "panel": grid.title,
        "measure": grid.unit,
        "model": row.label,
        "own_model": series.model if series else "",
        "own_method": series.method if series else "",
        "column": column.label,
        "published": grid.published.get(place),
        "measured": ours.value if ours else None,
        "low": ours.low if ours else None,
        "high": ours.high if ours else None,
        "samples": ours.samples if ours else None,
        "independent": ours.independent if ours else None,
        "complete": not ours.partial if ours else None,
        "difference": grid.differences.get(place),
        "deviations": "; ".join(ours.deviations) if ours else "",
    }


def markdown(title: str, grids: Sequence[Grid], below: Sequence[str] = ()) -> str:
    """Wide tables, one a grid."""
    parts = [f"# {title}\n"]
    for grid in grids:
        columns = _columns(grid)
        rows = []
        for row, view, cells in _lines(grid, columns):
            name = markdown_escape(row.label) if view == grid.views[0] else ""
            rows.append([name, WHOSE[view], *(cell or "–" for cell in cells)])
        head = ["model", "", *(column.label for column in columns)]
        parts.append(f"{_heading(grid)}\n\n{markdown_table(head, rows, left=2)}\n")
        parts += [f"- {letter(n)}: {markdown_escape(text)}" for n, text in enumerate(grid.notes)]
        parts += [f"\n{grid.smallest}\n"] if grid.smallest else []
        parts += [f"\n{grid.timed.capitalize()}.\n"] if grid.timed and grid.ours else []
    return "\n".join([*parts, *(f"\n{line}" for line in below), ""])


def latex(title: str, grids: Sequence[Grid]) -> str:
    """Wide tables for booktabs, groups of models apart by rules."""
    return "\n".join(_latex_table(title, grid) for grid in grids)


def _latex_table(title: str, grid: Grid) -> str:
    columns = _columns(grid)
    body: list[str] = []
    group = ""
    for row, view, cells in _lines(grid, columns):
        found = group_of(row).name
        if found != group and body:
            body.append(RULE)
        group = found
        name = row.label if view == grid.views[0] else ""
        whose = WHOSE[view] if len(grid.views) > 1 else ""
        body.append(
            latex_line([latex_escape(t) for t in (name, whose, *(c or "–" for c in cells))])
        )
    marks = "; ".join(f"{letter(n)}: {text}" for n, text in enumerate(grid.notes))
    smallest = grid.smallest.removesuffix(".")
    caption = latex_escape(". ".join(filter(None, (title, _heading(grid, ""), marks, smallest))))
    head = ["Model", "", *(column.label for column in columns)]
    return latex_table(head, body, caption, 2, _narrowed(len(columns)))


def _narrowed(columns: int) -> list[str]:
    """What lets a wide table fit a page: smaller letters, columns closer together."""
    if columns <= 5:
        return []
    size = r"\footnotesize" if columns <= 8 else r"\scriptsize"
    return [size, r"\setlength{\tabcolsep}{3pt}"]


def _heading(grid: Grid, sign: str = "## ") -> str:
    return sign + ", ".join(filter(None, (grid.title, grid.unit)))


def _columns(grid: Grid) -> list[Column]:
    labels = {column.label for view in grid.views for column in grid.seen(view)[1]}
    return [column for column in grid.columns if column.label in labels]


def _lines(grid: Grid, columns: Sequence[Column]) -> list[tuple[Row, View, list[str]]]:
    """Each row once a view in which it has a number, as texts."""
    lines = []
    for row in grid.rows:
        for view in grid.views:
            cells = [_cell(grid, view, row, column) for column in columns]
            if any(cells):
                lines.append((row, view, cells))
    return lines


def _cell(grid: Grid, view: View, row: Row, column: Column) -> str:
    place = row.name, column.label
    value = grid.values(view).get(place)
    if value is None:
        return ""
    text = grid.text(view, value)
    if view != "ours":
        return text
    ours = grid.ours[place]
    between = f" [{ours.low:.0f}–{ours.high:.0f}]" if ours.low == ours.low else ""
    marks = grid.marks(ours)
    return f"{text}{between}" + (f" ({marks})" if marks else "")
