"""Causes of failure, survival of stored facts and errors a turn, as long tables."""

from __future__ import annotations

import pandas as pd

from core.arithmetic.intervals import wilson
from reports.causes.cause import Gate
from reports.causes.decay import expected, expected_empty
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


def decay_frame(survey: Survey) -> pd.DataFrame:
    """One row a cell in which facts were read: what became of them, the share of stored ones that
    a turn loses and the share in the last memory, each with its 95% interval, and the latter as
    the rates of the task's other lengths would have it; the same for the memory that is to be
    empty until the first fact is read."""
    rows = []
    for number, (cell, kept, before) in enumerate(
        zip(survey.cells, survey.kept, survey.before, strict=True)
    ):
        if not kept.read:
            continue
        others = survey.other_lengths(number)
        lost = wilson(kept.lost / kept.turns, kept.turns) if kept.turns else (None, None)
        held = wilson(kept.held / kept.read, kept.read)
        noted = wilson(before.noted / before.turns, before.turns) if before.turns else (None, None)
        samples = before.waits.total()
        rows.append(
            {
                "task": cell.cell.task,
                "length": cell.cell.length,
                "method": cell.cell.method,
                "model": cell.cell.model,
                "read": kept.read,
                "stored": kept.stored,
                "turns_held": kept.turns,
                "lost": kept.lost,
                "blurred": kept.blurred,
                "held": kept.held,
                "answered": kept.answered,
                "lost_a_turn": kept.lost / kept.turns if kept.turns else None,
                "lost_low": lost[0],
                "lost_high": lost[1],
                "held_share": kept.held / kept.read,
                "held_low": held[0],
                "held_high": held[1],
                "expected_share": expected(kept, [survey.kept[n] for n in others]),
                "empty_turns": before.turns,
                "noted": before.noted,
                "noted_a_turn": before.noted / before.turns if before.turns else None,
                "noted_low": noted[0],
                "noted_high": noted[1],
                "empty_share": before.empty / samples if samples else None,
                "expected_empty": expected_empty(before, [survey.before[n] for n in others]),
            }
        )
    return pd.DataFrame(rows)
