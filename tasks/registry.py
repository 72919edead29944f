"""All tasks, by name. Read top to bottom; parameters can be changed with dataclasses.replace."""

from __future__ import annotations

from core.errors import UsageError
from tasks.niah import Niah
from tasks.task import Task

_ALL: tuple[Task, ...] = (
    Niah("niah_single_1", "one number under one key, in repeated noise", "noise"),
    Niah(
        "niah_multikey_1_noise",
        "one of four keys asked for, in repeated noise",
        "noise",
        keys=4,
    ),
    Niah("niah_multikey_2", "one key among lines that all look like it", "needle"),
    Niah(
        "niah_multikey_3",
        "one uuid among lines that all look like it",
        "needle",
        key_kind="uuids",
        value_kind="uuids",
    ),
    Niah(
        "niah_multivalue_noise",
        "all four values of one key, in repeated noise",
        "noise",
        values=4,
    ),
    Niah(
        "niah_multiquery_noise",
        "the values of four keys, in repeated noise",
        "noise",
        keys=4,
        queries=4,
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def find_task(name: str) -> Task:
    """The task of that name.

    Raises:
        UsageError: there is none; the text lists those there are.
    """
    if name not in TASKS:
        raise UsageError(f"no task {name!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]
