"""LongBench in MemAgent's ICLR 2026 version: questions and summaries."""

from __future__ import annotations

from reports.exhibits.build import as_heatmap, of_grids
from reports.exhibits.exhibit import Exhibit
from reports.exhibits.grid import Column, Grid
from reports.exhibits.models import LONG_CONTEXT, RL, rows_of
from reports.exhibits.papers.memagent import ICLR
from reports.run.matching import NATIVE

QUESTIONS = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
SUMMARIES = ("gov_report", "qmsum")
ROWS = rows_of(RL, LONG_CONTEXT)

QA_TITLE = "LongBench-QA: mean over sets of questions"
SUM_TITLE = "LongBench-SUM: recall of summaries"


def _native(task: str, *tasks: str) -> Column:
    return Column(task, task, NATIVE, tasks or (task,), (NATIVE,))


MEAN = Column("mean", "longbench_qa_avg", NATIVE, QUESTIONS, (NATIVE,))

EXHIBITS: tuple[Exhibit, ...] = (
    of_grids(
        "longbench-qa",
        QA_TITLE,
        "score of agents and long-context models, mean over sets of questions; ours set by set",
        ICLR,
        [
            Grid(
                *("", "accuracy", ROWS, (*map(_native, QUESTIONS), MEAN), ("LongBench-QA",)),
                profile="strict",
                metric="f1",
                own_lengths=False,
            )
        ],
        as_heatmap(
            QA_TITLE,
            [
                "Which sets the published mean is of is not printed; ours: LongBench's six English "
                "ones. Ours is token F1 of the extracted answer, best over the golds."
            ],
        ),
    ),
    of_grids(
        "longbench-sum",
        SUM_TITLE,
        "recall on gov_report and qmsum",
        ICLR,
        [
            Grid(
                *("", "accuracy", ROWS, tuple(map(_native, SUMMARIES)), ("LongBench-SUM",)),
                metric="recall",
                own_lengths=False,
            )
        ],
        as_heatmap(SUM_TITLE, ["Ours: ROUGE-L recall; the paper says recall and not which."]),
    ),
)
