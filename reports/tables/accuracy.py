"""The numbers of a run as tables: long CSV for machines, wide Markdown and LaTeX for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reports.labels import Series, length_label, model_label, percent
from reports.run.data import Point, RunData
from reports.run.published import Comparison
from reports.tables.markup import (
    RULE,
    latex_escape,
    latex_line,
    latex_table,
    markdown_escape,
    markdown_table,
)
from reports.tables.smallest import of_accuracy
from tasks.scoring import PROFILES

LATEX_DAGGER = r"$^\dagger$"


@dataclass(frozen=True, slots=True)
class WideRow:
    """A task and series across all lengths of the run; None where there is no number. `mean`
    marks the rows of the mean over tasks."""

    task: str
    mean: bool
    series: Series
    points: tuple[Point | None, ...]


# -- long --------------------------------------------------------------------------------


def accuracy_frame(run: RunData) -> pd.DataFrame:
    """One row a cell, profile and metric. Scores are shares of 1, `low` and `high` the 95%
    interval; `n` counts finished draws of samples, failed ones (score 0) included, `independent`
    the samples, those that share a document or a question once."""
    return pd.DataFrame(
        [
            {
                **_key(cell.task, cell.length, cell.series),
                "profile": profile,
                "metric": metric,
                "primary": metric == cell.metric,
                "mean": score.mean,
                "low": score.low,
                "high": score.high,
                "n": score.n,
                "independent": score.clusters,
                "samples": cell.samples,
                "draws": cell.draws,
                "owed": cell.owed,
                "complete": cell.owed == 0,
            }
            for cell in run.cells
            for profile, metrics in cell.scores.items()
            for metric, score in metrics.items()
        ]
    )


def cell_frame(run: RunData) -> pd.DataFrame:
    """One row a cell, for people: `strict` and `published` are the primary metric's means, shares
    of 1, `_low` and `_high` their 95% intervals; then what became of its samples and what they
    cost, as in `ledger_frame`. Scores are empty where nothing has ended, or nothing is scored."""
    rows = []
    for cell in run.cells:
        row = _key(cell.task, cell.length, cell.series)
        for profile in PROFILES:
            score = cell.score(profile)
            row[profile] = score.mean if score else None
            row[f"{profile}_low"] = score.low if score else None
            row[f"{profile}_high"] = score.high if score else None
        rows.append(row)
    counts = ledger_frame(run).drop(columns=["task", "length", "method", "model"])
    return pd.concat([pd.DataFrame(rows), counts], axis=1)


def ledger_frame(run: RunData) -> pd.DataFrame:
    """One row a cell: samples x draws = attempted + owed, attempted = ok + errors, one column an
    error kind; replies cut by the token budget; `usd`, what all its turns cost, where prices were
    given; costs (tokens, seconds) and what the method itself counts, as means of the samples that
    ended well. Empty where a run does not know."""
    kinds = sorted({kind for cell in run.cells for kind in cell.errors})
    counts = sorted({name for cell in run.cells for name in cell.counts})
    frame = pd.DataFrame(
        [
            {
                **_key(cell.task, cell.length, cell.series),
                "samples": cell.samples,
                "draws": cell.draws,
                "attempted": cell.finished,
                "owed": cell.owed,
                "ok": cell.ok,
                "errors": cell.failed,
                **{f"error_{kind}": cell.errors.get(kind, 0) for kind in kinds},
                "cut_samples": cell.cut_samples,
                "cut_turns": cell.cut_turns,
                "unparsed": cell.unparsed,
                **({"usd": cell.usd} if run.spent else {}),
                "mean_turns": cell.cost.turns,
                "mean_prompt_tokens": cell.cost.prompt_tokens,
                "mean_completion_tokens": cell.cost.completion_tokens,
                "mean_seconds": cell.cost.seconds,
                "mean_truncated_tokens": cell.cost.truncated_tokens,
                **{f"mean_{name}": cell.counts.get(name) for name in counts},
            }
            for cell in run.cells
        ]
    )
    return frame.astype({"cut_samples": "Int64", "cut_turns": "Int64"})


def comparison_frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """One row a published number that a cell of the run meets; all values in per cent, ours
    under the `published` profile. `deviations`: what ours differs in."""
    return pd.DataFrame(
        [
            {
                **_key(c.cell.task, c.cell.length, c.cell.series),
                "ours_pct": 100 * c.ours.mean,
                "low_pct": 100 * c.ours.low,
                "high_pct": 100 * c.ours.high,
                "n": c.ours.n,
                "complete": c.cell.owed == 0,
                "published_pct": c.row.value,
                "difference_points": c.difference,
                "published_model": c.row.model,
                "published_length": c.row.length,
                "source": c.row.source,
                "exhibit": c.row.exhibit,
                "deviations": "; ".join(c.placed.deviations),
            }
            for c in comparisons
        ]
    )


def _key(task: str, length: int, series: Series) -> dict[str, object]:
    return {"task": task, "length": length, "method": series.method, "model": series.model}


# -- wide --------------------------------------------------------------------------------


def wide_rows(run: RunData, profile: str) -> list[WideRow]:
    """A row a task and series that has it, in the order of the plan; the rows of the mean
    come last."""
    rows = []
    for task in sorted(run.panels, key=lambda task: task is None):
        for series in run.series_of(task):
            points = {p.length: p for p in run.line(task, series, profile)}
            cells = tuple(points.get(length) for length in run.lengths)
            rows.append(WideRow(run.task_label(task), task is None, series, cells))
    return rows


def markdown(run: RunData) -> str:
    """Both profiles' accuracy as Markdown tables, one below the other."""
    intro = f"In brackets the 95% interval. {_explained('†', '–')}"
    smallest = of_accuracy(run)
    intro += f"\n\n{smallest}" if smallest else ""
    parts = [f"# Accuracy in per cent, {markdown_escape(run.name)}\n\n{intro}\n"]
    head = ["task", "method", "model", *(length_label(n) for n in run.lengths)]
    for profile in PROFILES:
        rows = []
        for row in wide_rows(run, profile):
            names = (row.task, run.method_label(row.series.method), model_label(row.series.model))
            cells = (_cell(p, "–", "†", True) for p in row.points)
            rows.append([*map(markdown_escape, names), *cells])
        parts.append(f"## Scoring: {profile}\n\n{markdown_table(head, rows, left=3)}\n")
    return "\n".join(parts)


def latex(run: RunData) -> str:
    """Both profiles' accuracy as LaTeX tables (needs booktabs), one below the other."""
    return "\n".join(_latex_table(run, profile) for profile in PROFILES)


def _latex_table(run: RunData, profile: str) -> str:
    head = ["Task", "Method", "Model", *(length_label(n) for n in run.lengths)]
    smallest = latex_escape(of_accuracy(run))
    explained = f"{_explained(LATEX_DAGGER, '--')} {smallest}".rstrip()
    body: list[str] = []
    rows = wide_rows(run, profile)
    for place, row in enumerate(rows):
        first = place == 0 or rows[place - 1].task != row.task
        if first and place:
            body.append(RULE)
        task = latex_escape(row.task) if first else ""
        called = run.method_label(row.series.method), model_label(row.series.model)
        cells = [_cell(p, "--", LATEX_DAGGER, False) for p in row.points]
        body.append(latex_line([task, *map(latex_escape, called), *cells]))
    caption = f"Accuracy in per cent, {profile} scoring. {explained}"
    return latex_table(head, body, caption, left=3)


def _explained(mark: str, dash: str) -> str:
    return (
        "Columns are context lengths in tokens. Failed samples count as 0. "
        f"{mark} unfinished, with finished/all samples. {dash} no number yet."
    )


def _cell(point: Point | None, dash: str, mark: str, interval: bool) -> str:
    if point is None:
        return dash
    value = point.value
    between = f" [{percent(value.low)}–{percent(value.high)}]" if interval else ""
    counts = f" {mark}{point.finished}/{point.samples}" if point.partial else ""
    return f"{percent(value.mean, 1)}{between}{counts}"
