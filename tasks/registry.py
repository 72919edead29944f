"""All tasks, by name. Read top to bottom.

Parameters can be changed with dataclasses.replace, or in a name: `niah_single_1@depth=0.25`.
"""

from __future__ import annotations

from dataclasses import fields

from core.errors import UsageError
from tasks.fiction.fiction import Fiction
from tasks.questions.documents import DocumentQuestions
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


class _Tasks(dict[str, Task]):
    """Tasks by name. A name may go on with other settings: `vt@depth=0.5,form=ruler`. It keeps
    the task's own name in the seed, so that a sample is the same at every depth."""

    def __missing__(self, name: str) -> Task:
        base, _, settings = name.partition("@")
        if base not in self or not settings:
            raise UsageError(f"no task {name!r}; there are: {', '.join(self)}")
        return _with_settings(self[base], name, settings)


def _with_settings(task: Task, name: str, settings: str) -> Task:
    from pydantic import TypeAdapter, ValidationError

    values: dict[str, object] = {
        field.name: getattr(task, field.name)
        for field in fields(task)  # type: ignore[arg-type]
    }
    given: set[str] = set()
    for setting in settings.split(","):
        key, _, value = setting.partition("=")
        if key in given:
            raise UsageError(f"task {name!r}: {key} is given twice")
        given.add(key)
        if key not in values or key in ("name", "summary"):
            known = ", ".join(key for key in values if key not in ("name", "summary"))
            raise UsageError(f"task {name!r}: no setting {key!r}; there are: {known}")
        values[key] = value
    try:
        made: Task = TypeAdapter(type(task)).validate_python(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageError(
            f"task {name!r}: {wrong['loc'][0]} is {wrong['input']!r}: {wrong['msg']}"
        ) from error
    return made


TASKS: dict[str, Task] = _Tasks({task.name: task for task in _ALL})


def find_task(name: str) -> Task:
    """The task of that name, with the settings that the name goes on with, if any.

    Raises:
        UsageError: there is none, or a setting is unknown or wrong; the text lists those
            there are.
    """
    return TASKS[name]
