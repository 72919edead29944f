"""All tasks, by name. Read top to bottom.

Parameters can be changed with dataclasses.replace, or in a name: `niah_single_1@depth=0.25`. A
task from outside the project is an object in a user's file, named `my_tasks.py:TASK`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass
from typing import Any

from core.errors import UsageError
from core.names import Name, checked, not_known, parse_name
from core.outside import is_outside, load_outside
from tasks.fiction.fiction import Fiction
from tasks.questions.documents import DocumentQuestions
from tasks.questions.kept_questions import KeptQuestions
from tasks.questions.longbench import PROMPTS, LongBench
from tasks.questions.published_files import PublishedQuestions
from tasks.questions.training_questions import TrainingQuestions
from tasks.ruler.cwe import CommonWords
from tasks.ruler.fwe import FrequentWords
from tasks.ruler.niah import Niah
from tasks.ruler.vt import VariableTracking
from tasks.task import Task

_ALL: tuple[Task, ...] = (
    # RULER's eight needle tasks
    Niah("niah_single_1", "one number under one key, in repeated noise", "noise"),
    Niah("niah_single_2", "one number under one key, in essays", "essay"),
    Niah("niah_single_3", "one uuid under one key, in essays", "essay", value_kind="uuids"),
    Niah("niah_multikey_1", "one of four keys is asked for, in essays", "essay", keys=4),
    Niah("niah_multikey_2", "one key among lines that all look like it", "needle"),
    Niah(
        "niah_multikey_3",
        "one uuid key among lines that all look like it",
        "needle",
        key_kind="uuids",
        value_kind="uuids",
    ),
    Niah("niah_multivalue", "all four values of one key, in essays", "essay", values=4),
    Niah("niah_multiquery", "the values of four keys, in essays", "essay", keys=4, queries=4),
    # The same without essays, which are under copyright and not part of the project
    Niah("niah_multikey_1_noise", "one of four keys, in repeated noise", "noise", keys=4),
    Niah("niah_multivalue_noise", "all four values of one key, in noise", "noise", values=4),
    Niah("niah_multiquery_noise", "the values of four keys, in noise", "noise", keys=4, queries=4),
    VariableTracking("vt", "the five variables that share a value, in noise"),
    CommonWords("cwe", "the ten words that a numbered list repeats most often"),
    FrequentWords("fwe", "the three most frequent coded words, dots apart"),
    # Questions on documents: local corpora
    DocumentQuestions(
        "ruler_hqa",
        "HotpotQA questions in a haystack of documents, filled to the length",
        "hotpotqa",
        bare_question=True,
    ),
    DocumentQuestions(
        "ruler_hqa_published",
        "the same by MemAgent's numbers of documents: 7000 is 50, 14000 is 100, ...",
        "hotpotqa",
        bare_question=True,
        documents="published",
    ),
    DocumentQuestions(
        "ruler_hqa_early20",
        "ruler_hqa with the gold documents in the first fifth",
        "hotpotqa",
        bare_question=True,
        gold_within=0.2,
    ),
    DocumentQuestions(
        "ruler_hqa_early10",
        "ruler_hqa with the gold documents in the first tenth",
        "hotpotqa",
        bare_question=True,
        gold_within=0.1,
    ),
    *(
        KeptQuestions(
            f"ruler_hqa_kept{suffix}",
            f"{what}, by MemAgent's numbers of documents, its questions and places",
            "hotpotqa",
            bare_question=True,
            documents="published",
            published=True,
            gold_within=share,
        )
        for suffix, what, share in (
            ("", "ruler_hqa on the published questions", 1.0),
            ("_early20", "the same with the gold documents in the first fifth", 0.2),
            ("_early10", "the same with the gold documents in the first tenth", 0.1),
        )
    ),
    PublishedQuestions(
        "ruler_hqa_files",
        "MemAgent's own files: length 7000 is eval_50.json, 14000 is eval_100.json, ...",
    ),
    TrainingQuestions(
        "ruler_hqa_train",
        "ruler_hqa_published from HotpotQA's training file: what the papers train on",
        "hotpotqa_train",
        bare_question=True,
        documents="published",
    ),
    DocumentQuestions("qa_1", "SQuAD questions in a haystack of paragraphs", "squad"),
    DocumentQuestions("qa_2", "HotpotQA questions in a haystack of documents", "hotpotqa"),
    # Given samples of natural length: 0 is that length, any other only names the column
    *(LongBench(f"longbench_{data_set}", p.summary, data_set) for data_set, p in PROMPTS.items()),
    # The same form without a corpus: every seed is a world of its own
    Fiction("fiction_2hop", "questions on two documents of an invented world", (2,)),
    Fiction("fiction_3hop", "questions on three documents of an invented world", (3,)),
    Fiction("fiction_4hop", "questions on four documents of an invented world", (4,)),
    Fiction("fiction_mixed", "questions on two to four documents of one world", (2, 3, 4)),
    Fiction(
        "fiction_early20",
        "fiction_mixed with the gold documents in the first fifth",
        (2, 3, 4),
        gold_within=0.2,
    ),
)


TASKS: dict[str, Task] = {task.name: task for task in _ALL}

FIXED = ("name", "summary")
"""Fields of a task that are no settings: a task keeps its own name, which is part of the seed, so
that a sample is the same at every depth."""


def find_task(name: str) -> Task:
    """The task of that name: one of TASKS, or an object of a user's file (`my_tasks.py:TASK`),
    with the settings that the name goes on with, if any (`vt@hops=2,depth=0.5`).

    Raises:
        UsageError: there is none, or a setting is unknown or wrong; the text lists those
            there are.
    """
    parsed = parse_name(name)
    task = _outside(parsed.base) if is_outside(parsed.base) else TASKS.get(parsed.base)
    if task is None:
        raise UsageError(f"task {not_known(parsed.base, TASKS)}")
    return _with_settings(task, parsed) if parsed.settings else task


def _outside(base: str) -> Task:
    task = load_outside(base)
    if isinstance(task, type) or not isinstance(task, Task):
        raise UsageError(
            f"task {base}: got {task!r:.80}, expected an object with all that tasks.task.Task has"
        )
    return task


def _with_settings(task: Task, name: Name) -> Task:
    values = {field.name: getattr(task, field.name) for field in _fields(task)}
    known = [field for field in values if field not in FIXED]
    for key in name.settings:
        if key not in known:
            raise UsageError(f"task {name}: setting {not_known(key, known)}")
    return checked(type(task), {**values, **name.settings}, f"task {name}")


def _fields(task: Task) -> Sequence[Field[Any]]:
    return fields(task) if is_dataclass(task) else ()
