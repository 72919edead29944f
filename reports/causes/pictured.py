"""Cells that are shown fact by fact and turn by turn, and which these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.store import Cell
from core.types import Turn
from reports.causes.cause import Diagnosis
from reports.causes.lifeline import Lifeline
from reports.labels import Series
from reports.run.data import RunData
from reports.run.traces import Key

MOST_TASKS, MOST_SERIES = 3, 6


@dataclass(slots=True)
class Pictured:
    """A cell with each fact's lifeline and the last turn of its sample that told a memory, and
    with each sample's tokens of memory after each turn."""

    cell: Cell
    lines: list[tuple[Lifeline, int]] = field(default_factory=list)
    memory_tokens: list[list[float]] = field(default_factory=list)

    @property
    def series(self) -> Series:
        """Its method and model."""
        return Series(self.cell.method, self.cell.model)

    def add(self, turns: Sequence[Turn], diagnosis: Diagnosis) -> None:
        """Takes a sample in, if it has a memory."""
        last = diagnosis.last_memory_turn
        if last is not None:
            self.lines += [(line, last) for line in diagnosis.lifelines]
            self.memory_tokens.append(memory_tokens(turns))


def pictured_cells(run: RunData) -> tuple[Key, ...]:
    """Which cells of a run to show: of its first tasks the agents', at the longest length at
    which samples of all of them have ended. Picked by their place, not by what came out."""
    found: list[Key] = []
    tasks = run.beside_depths().tasks or run.tasks
    for task in tasks[:MOST_TASKS]:
        ended: dict[Series, set[int]] = {}
        for cell in run.cells:
            if cell.task == task and cell.finished and run.is_agent(cell.series):
                ended.setdefault(cell.series, set()).add(cell.length)
        if not ended:
            continue
        shared = set.intersection(*ended.values())
        for series, lengths in list(ended.items())[:MOST_SERIES]:
            length = max(shared or lengths)
            found.append((task, length, series.method, series.model))
    return tuple(found)


def memory_tokens(turns: Sequence[Turn]) -> list[float]:
    """The memory's tokens after each memory turn. One that is part of a reply has the reply's
    tokens by its share of the characters."""
    found: list[float] = []
    before = ""
    for turn in turns:
        if turn.tag != "memory" and turn.memory is None:
            continue
        memory = turn.reply if turn.memory is None else turn.memory
        if found and memory == before:
            found.append(found[-1])
        else:
            share = len(memory) / max(len(turn.reply), 1)
            found.append(turn.completion_tokens * min(share, 1.0))
        before = memory
    return found
