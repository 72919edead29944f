"""Writes the report of a run: one page, figures as PNG and PDF, tables.

    out/index.html                  everything in one file, no network needed
    out/figures/*.png, *.pdf        accuracy, heatmap, depth (each profile), causes, survival,
                                    decay, lifelines, memory, cost, turns, published
    out/tables/accuracy.csv .md .tex, paired.csv, causes.csv, survival.csv, decay.csv,
               differing.csv, efficiency.csv, ledger.csv, published.csv

The run may still be going on; what is missing is shown as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import UsageError
from core.files import write_whole
from reports.causes.diagnosed import Runs
from reports.causes.pictured import pictured_cells
from reports.causes.survey import Survey
from reports.exhibits.models import LOOKS
from reports.explorer.page import DEFAULT_TURNS, TurnsChoice, explorer_of
from reports.explorer.table import Table
from reports.figures.causes import causes_figure
from reports.figures.cost import cost_figure, turns_figure
from reports.figures.curves import accuracy_figure
from reports.figures.decay import decay_figure
from reports.figures.depth import depth_figure
from reports.figures.heatmap import heatmap_figure
from reports.figures.lifelines import lifelines_figure
from reports.figures.memory import memory_figure
from reports.figures.published import published_figure
from reports.figures.style import Rendered
from reports.figures.survival import survival_figure
from reports.labels import Series
from reports.page.page import PageParts, page_html
from reports.run.data import RunData
from reports.run.load import load_runs
from reports.run.published import (
    Comparison,
    compare,
    read_published,
    references,
)
from reports.statistics.paired import PairedTest, find_reference
from reports.tables.accuracy import accuracy_frame, comparison_frame, latex, ledger_frame, markdown
from reports.tables.causes import causes_frame, decay_frame, survival_frame
from reports.tables.differing import differing_frame
from reports.tables.efficiency import efficiency_frame
from reports.tables.paired import paired_by_profile, paired_frame
from tasks.scoring import PROFILES


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """Where everything of a report lies."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    reference: str | None = None,
    *,
    turns: TurnsChoice = DEFAULT_TURNS,
    data: Path | None = None,
) -> ReportFiles:
    """Renders one report of all runs, folders of stores or exports, into `out` (default, for one
    folder: its `report`). Files that are there are replaced one by one, each in one step.

    `reference` names the model or method that paired tests compare all others with. `turns`: of
    which samples the page holds the turns; `data`: the folder of the corpora that their contexts
    are made from again.

    Raises:
        UsageError: no run there, runs that do not go together, no finished sample yet, no
            such reference, or `out` cannot be written to.
        StoreError: the store is damaged.
    """
    if out is None:
        if len(runs) > 1 or runs[0].is_file():
            raise UsageError(
                "a report of several runs, or of an export, needs a place of its own: give --out"
            )
        out = runs[0] / "report"
    run = load_runs(runs)
    compared_with = find_reference(run, reference)
    rows = read_published()
    comparisons = compare(run, rows)
    reference_rows = references(run, rows)
    survey, table = surveyed(run, Runs(runs))
    figures = _figures(run, survey)
    curves = published_figure(reference_rows, LOOKS)
    tests = paired_by_profile(run, compared_with)
    parts = PageParts(
        *(run, compared_with, tests, tuple(figures), curves),
        *(tuple(comparisons), tuple(reference_rows), survey),
        explorer_of(table, turns, data),
    )
    page = page_html(parts)
    tables = _tables(run, comparisons, compared_with, tests, survey)
    return _written(out, page, [*figures, curves] if curves else figures, tables)


def _written(
    out: Path, page: str, figures: Sequence[Rendered], tables: Mapping[str, str]
) -> ReportFiles:
    try:
        figure_paths = [
            write_whole(out / "figures" / f"{figure.name}{suffix}", content)
            for figure in figures
            for suffix, content in ((".png", figure.png), (".pdf", figure.pdf))
        ]
        table_paths = [write_whole(out / "tables" / name, text) for name, text in tables.items()]
        return ReportFiles(
            write_whole(out / "index.html", page), tuple(figure_paths), tuple(table_paths)
        )
    except OSError as error:
        raise UsageError(
            f"{out}: the report cannot be written there ({error.strerror}). Make room, or give "
            "another --out."
        ) from error


def surveyed(run: RunData, samples: Runs) -> tuple[Survey, Table]:
    """What failures come from, and the explorer's table: both of one reading of all turns."""
    survey, table = Survey.of(samples, pictured_cells(run)), Table(samples, run.name)
    table.refresh(also=survey.add)
    return survey, table


def _figures(run: RunData, survey: Survey) -> list[Rendered]:
    """The figures that the run has something for. Tasks at several depths have their own; what
    a sample costs is shown of them where there is nothing else."""
    rest = run.beside_depths()
    kinds = [accuracy_figure, heatmap_figure] if rest.panels else []
    drawn = [
        *(kind(rest, profile) for kind in kinds for profile in PROFILES),
        *(depth_figure(run, profile) for profile in PROFILES),
        causes_figure(run, survey),
        survival_figure(run, survey),
        decay_figure(run, survey),
        lifelines_figure(run, survey),
        memory_figure(run, survey),
        cost_figure(rest if rest.cells else run),
        turns_figure(rest),
    ]
    return [figure for figure in drawn if figure]


def _tables(
    run: RunData,
    comparisons: list[Comparison],
    reference: Series,
    tests: Mapping[str, Sequence[PairedTest]],
    survey: Survey,
) -> dict[str, str]:
    frames = {
        "accuracy.csv": accuracy_frame(run),
        "ledger.csv": ledger_frame(run),
        "efficiency.csv": efficiency_frame(run, reference),
        "paired.csv": paired_frame(run, tests),
        "differing.csv": differing_frame(run),
        "causes.csv": causes_frame(survey),
        "survival.csv": survival_frame(survey),
        "decay.csv": decay_frame(survey),
        "published.csv": comparison_frame(comparisons),
    }
    tables = {
        name: frame.to_csv(index=False, lineterminator="\n")
        for name, frame in frames.items()
        if len(frame)
    }
    if not run.scored_tasks:
        return tables
    return tables | {"accuracy.md": markdown(run), "accuracy.tex": latex(run)}
