"""The answers on which the profiles `published` and `strict` differ, one by one."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from reports.run.data import RunData

SHOWN = 40
"""Answers that the page shows; the CSV has them all."""


def differing_frame(run: RunData) -> pd.DataFrame:
    """One row an answer. Scores are shares of 1; golds are joined by ` | `."""
    return pd.DataFrame(
        [
            {
                "task": one.task,
                "length": one.length,
                "method": one.series.method,
                "model": one.series.model,
                "index": one.index,
                "draw": one.draw,
                "id": one.id,
                "published": one.published,
                "strict": one.strict,
                "prediction": one.prediction,
                "golds": " | ".join(one.golds),
                "question": one.question,
                "reply": one.reply,
            }
            for one in run.differing
        ]
    )


def differing_in_words(run: RunData) -> str:
    """`12 answers of 640: published is higher for 9, strict for 3 (qa_1 10, vt 2).`"""
    answered = sum(cell.ok for cell in run.cells)
    count = len(run.differing)
    if not count:
        return f"None: the profiles agree on all {answered:,} answers."
    higher = sum(one.published > one.strict for one in run.differing)
    by_task = Counter(one.task for one in run.differing)
    tasks = ", ".join(f"{task} {number:,}" for task, number in by_task.most_common())
    return (
        f"{count:,} of {answered:,} answers: published is higher for {higher:,}, strict for "
        f"{count - higher:,} ({tasks})."
    )
