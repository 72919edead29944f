"""Writes the report of a run: one page, figures as PNG and PDF, tables.

    out/index.html                  everything in one file, no network needed
    out/figures/*.png, *.pdf        accuracy and heatmap (each profile), cost, published curves
    out/tables/accuracy.csv .md .tex, ledger.csv, published.csv

The run may still be going on; what is missing is shown as missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from core.errors import UsageError
from reports.data import RunData, load_run
from reports.figures import accuracy_figure, cost_figure, heatmap_figure
from reports.labels import PROFILES
from reports.page import PageParts, page_html
from reports.published import Comparison, compare, read_published, references
from reports.published_figure import published_figure
from reports.style import Rendered
from reports.tables import accuracy_frame, comparison_frame, latex, ledger_frame, markdown


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """Where everything of a report lies."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]


def write_report(run_dir: Path, out: Path | None = None) -> ReportFiles:
    """Renders the report of `run_dir` into `out` (default `run_dir/report`). Files that are
    there are replaced one by one, each in one step.

    Raises:
        UsageError: no run there, no finished sample yet, or `out` cannot be written to.
        StoreError: the store is damaged.
    """
    run = load_run(run_dir)
    out = run_dir / "report" if out is None else out
    rows = read_published()
    comparisons = compare(run, rows)
    reference_rows = references(run, rows)
    figures = _figures(run)
    reference = published_figure(reference_rows)
    parts = PageParts(run, tuple(figures), reference, tuple(comparisons), tuple(reference_rows))
    page = page_html(parts).encode()
    everything = [*figures, reference] if reference else figures
    try:
        figure_paths = [
            _replace(out / "figures" / f"{figure.name}{suffix}", content)
            for figure in everything
            for suffix, content in ((".png", figure.png), (".pdf", figure.pdf))
        ]
        table_paths = [
            _replace(out / "tables" / name, text.encode())
            for name, text in _tables(run, comparisons).items()
        ]
        return ReportFiles(
            _replace(out / "index.html", page), tuple(figure_paths), tuple(table_paths)
        )
    except OSError as error:
        raise UsageError(
            f"{out}: the report cannot be written there ({error.strerror}). Make room, or give "
            "another --out."
        ) from error


def _figures(run: RunData) -> list[Rendered]:
    return [
        *(accuracy_figure(run, profile) for profile in PROFILES),
        *(heatmap_figure(run, profile) for profile in PROFILES),
        cost_figure(run),
    ]


def _tables(run: RunData, comparisons: list[Comparison]) -> dict[str, str]:
    tables = {
        "accuracy.csv": accuracy_frame(run).to_csv(index=False, lineterminator="\n"),
        "accuracy.md": markdown(run),
        "accuracy.tex": latex(run),
        "ledger.csv": ledger_frame(run).to_csv(index=False, lineterminator="\n"),
    }
    if comparisons:
        frame = comparison_frame(comparisons)
        tables["published.csv"] = frame.to_csv(index=False, lineterminator="\n")
    return tables


def _replace(path: Path, content: bytes) -> Path:
    """Writes a file in one step: a reader sees the old one or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
