"""Causes of failure and survival of stored facts, as long tables."""

from __future__ import annotations

import pandas as pd

from reports.causes.cause import Gate
from reports.causes.survey import Survey
from reports.statistics.survival import kaplan_meier


def causes_frame(survey: Survey) -> pd.DataFrame:
    """One row a cell and cause: how many samples failed by it, how many of these causes are
    guesses, and what GRU-Mem's gates did in them. The samples of a cell's rows add up to its
    failures."""
    causes = survey.causes
    return pd.DataFrame(
        {
            "task": cell.cell.task,
            "length": cell.cell.length,
            "method": cell.cell.method,
            "model": cell.cell.model,
            "finished": cell.finished,
            "failures": cell.failures,
            "cause": cause.value,
            "samples": cell.causes[cause],
            "guessed": cell.guessed[cause],
            **{gate.value: cell.gates[cause, gate] for gate in Gate},
        }
        for cell in survey.cells
        for cause in causes
        if cell.causes[cause]
    )


def survival_frame(survey: Survey) -> pd.DataFrame:
    """One row a task, series and number of turns after which facts were lost: the share of
    stored facts that is left (Kaplan-Meier) and its 95% interval."""
    return pd.DataFrame(
        {
            "task": task,
            "method": series.method,
            "model": series.model,
            "turns": point.time,
            "share": point.share,
            "low": point.low,
            "high": point.high,
            "at_risk": point.at_risk,
            "lost": point.ended,
        }
        for (task, series), lived in survey.lifetimes.items()
        for point in kaplan_meier(lived.lost, lived.kept)
    )
