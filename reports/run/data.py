"""What a report knows of a run: numbers a cell, lines over lengths, means over tasks.

A failed sample is in every denominator and scores 0. A cell with samples still owed is
`partial` and is marked wherever it is shown. Costs are means over the samples that ended
well, since a failed one stopped somewhere on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from reports.labels import Look, MethodLook, Series, look_of, looks, methods_of
from reports.run.depths import DepthMap, depth_maps
from reports.run.traces import Trace
from reports.statistics.intervals import Estimate, average
from serving.limits.budget import Spent


@dataclass(frozen=True, slots=True)
class Cost:
    """What one sample took, as means over the samples that ended well (NaN if none did).

    `chunks` is how many of its turns read a chunk; `seconds` is the summed wall time of its
    requests; `truncated_tokens` is how many context tokens the method never saw.
    """

    turns: float
    chunks: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float
    truncated_tokens: float


@dataclass(frozen=True, slots=True)
class CellStats:
    """One cell of the run: what was asked, what came out.

    `samples` were asked for, each `draws` times: `asked` in all. `finished` have ended: `ok` of
    them well, the others by the errors counted in `errors`. `cut_samples` have at least one reply
    that the token budget cut, `cut_turns` counts those replies; None where a run does not know.
    `unparsed` ended well but held no answer marker.
    `scores` is {profile: {metric: estimate}}, empty before the first sample has ended;
    `by_sample` is {profile: {sample id: primary score, the mean of its draws}} of the same,
    `clusters` which of them share a document or a question (reports/statistics/clusters.py),
    empty if none do.
    `metric` is empty where the task has no golds: such a cell has none of the three.
    `counts` are means of what the method itself counts (chunks read, turns not parsed), over
    the samples that ended well. `usd` is what an endpoint took for all turns of the cell, those
    of failed and unfinished samples too; None where no prices were given.
    """

    task: str
    length: int
    series: Series
    samples: int
    ok: int
    errors: Mapping[str, int]
    cut_samples: int | None
    cut_turns: int | None
    unparsed: int
    metric: str
    scores: Mapping[str, Mapping[str, Estimate]]
    by_sample: Mapping[str, Mapping[str, float]]
    clusters: Mapping[str, int]
    cost: Cost
    counts: Mapping[str, float]
    draws: int = 1
    usd: float | None = None

    @property
    def asked(self) -> int:
        """Draws of samples that were asked for."""
        return self.samples * self.draws

    @property
    def failed(self) -> int:
        """Samples that ended in an error."""
        return sum(self.errors.values())

    @property
    def finished(self) -> int:
        """Samples that have ended, well or in an error: the denominator of every score."""
        return self.ok + self.failed

    @property
    def independent(self) -> int:
        """Finished samples, not draws of them, those that share a document or a question
        counted once."""
        samples = next(iter(self.by_sample.values()), {})
        return len({*self.clusters.values()} if self.clusters else samples)

    @property
    def owed(self) -> int:
        """Samples that have not ended yet."""
        return self.asked - self.finished

    def score(self, profile: str) -> Estimate | None:
        """The primary metric's mean, None before the first sample has ended, or without golds."""
        return self.scores[profile][self.metric] if self.scores else None


@dataclass(frozen=True, slots=True)
class RunError:
    """One kind of error: how often, and what the first of them said."""

    kind: str
    count: int
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Differing:
    """An answer that the profiles `published` and `strict` score differently."""

    task: str
    length: int
    series: Series
    index: int
    draw: int
    id: str
    question: str
    golds: tuple[str, ...]
    prediction: str | None
    reply: str
    published: float
    strict: float


@dataclass(frozen=True, slots=True)
class Point:
    """A score of a series at a length, of one task or averaged over tasks."""

    length: int
    value: Estimate
    finished: int
    samples: int

    @property
    def partial(self) -> bool:
        """Samples are still owed: the number may move."""
        return self.finished < self.samples


@dataclass(frozen=True)  # without slots, so that what is derived from all cells is derived once
class RunData:
    """All that a report needs of a run, or of several that are shown as one. `spent`: what it
    cost in all, None where no prices were given."""

    name: str
    settings: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]
    cells: tuple[CellStats, ...]
    errors: tuple[RunError, ...]
    traces: tuple[Trace, ...]
    differing: tuple[Differing, ...]
    spent: Spent | None = None

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, Series, int], CellStats]:
        return {(cell.task, cell.series, cell.length): cell for cell in self.cells}

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks in the order of the plan."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @cached_property
    def scored_tasks(self) -> list[str]:
        """The tasks that have golds."""
        return list(dict.fromkeys(cell.task for cell in self.cells if cell.metric))

    @cached_property
    def depth_maps(self) -> Mapping[str, DepthMap]:
        """Base task -> its depths with their names in `tasks`, for tasks at several depths."""
        return depth_maps(self.tasks)

    @cached_property
    def depth_tasks(self) -> set[str]:
        """The names in `tasks` that stand for one depth of several."""
        return {task for rows in self.depth_maps.values() for _, task in rows}

    def over_depths(self, task: str) -> str:
        """What a task is called where those at several depths are one."""
        return self._over_depths.get(task, task)

    @cached_property
    def _over_depths(self) -> Mapping[str, str]:
        maps = self.depth_maps.items()
        return {task: f"{base}, all depths" for base, rows in maps for _, task in rows}

    def beside_depths(self) -> RunData:
        """The run without the tasks at several depths, which have a figure of their own."""
        return self._beside_depths

    @cached_property
    def _beside_depths(self) -> RunData:
        mapped = self.depth_tasks
        if not mapped:
            return self
        return replace(self, cells=tuple(cell for cell in self.cells if cell.task not in mapped))

    @cached_property
    def mean_tasks(self) -> list[str]:
        """The tasks that a mean is taken of: those that every series has at every length at
        which it has any. None where they are fewer than two. A task at several depths is no
        part of it: it would weigh as often as it has depths. Only where there is no other task
        is the mean one of depths."""
        scored = self.scored_tasks
        cells = [c for c in self.beside_depths().cells or self.cells if c.task in scored]
        places = {(cell.series, cell.length) for cell in cells}
        by_task: dict[str, set[tuple[Series, int]]] = {}
        for cell in cells:
            by_task.setdefault(cell.task, set()).add((cell.series, cell.length))
        shared = [task for task, found in by_task.items() if found == places]
        return shared if len(shared) > 1 else []

    @cached_property
    def panels(self) -> list[str | None]:
        """What is shown one by one: the mean (None) if there is one, then the tasks that are
        scored."""
        return [None, *self.scored_tasks] if self.mean_tasks else [*self.scored_tasks]

    def task_label(self, task: str | None) -> str:
        """What a panel or a row is called."""
        if task is not None:
            return task
        every = len(self.mean_tasks) == len(self.tasks)
        return f"mean of all {self.mean_unit}" if every else f"mean of {self.mean_count}"

    @property
    def mean_unit(self) -> str:
        """What a mean is taken over: `tasks`, or `depths` where the run has nothing else."""
        return "tasks" if self.beside_depths().cells else "depths"

    @property
    def mean_count(self) -> str:
        """Over how many a mean is taken: `3 tasks`."""
        return f"{len(self.mean_tasks)} {self.mean_unit}"

    @property
    def most_draws(self) -> int:
        """Answers that were drawn for each sample, at most."""
        return max(cell.draws for cell in self.cells)

    @property
    def cell_usd(self) -> float:
        """What the turns of all cells cost in US dollars, as far as prices were given."""
        return math.fsum(cell.usd for cell in self.cells if cell.usd is not None)

    @property
    def training_length(self) -> int | None:
        """The length in tokens that the models were trained at, where the suite says so."""
        length = self.settings.get("training_length")
        return length if isinstance(length, int) else None

    @cached_property
    def all_series(self) -> list[Series]:
        """Methods x models in the order of the plan."""
        return list(dict.fromkeys(cell.series for cell in self.cells))

    @cached_property
    def methods(self) -> dict[str, MethodLook]:
        """What the methods say of themselves, by name."""
        return methods_of(self.settings)

    def method_label(self, method: str) -> str:
        """What a method is called."""
        return look_of(method, self.methods).label

    def is_agent(self, series: Series) -> bool:
        """Whether its method carries a memory."""
        return look_of(series.method, self.methods).is_agent

    def looks(self) -> Mapping[Series, Look]:
        """How each series is drawn."""
        return self._looks

    @cached_property
    def _looks(self) -> Mapping[Series, Look]:
        return looks(self.all_series, self.methods)

    def series_of(self, task: str | None) -> list[Series]:
        """The series that a task (None: the mean) has cells of, in the order of the plan."""
        return self._series_of.get(task, [])

    @cached_property
    def _series_of(self) -> Mapping[str | None, list[Series]]:
        found: dict[str | None, dict[Series, None]] = {None: {}}
        mean = {*self.mean_tasks}
        for cell in self.cells:
            found.setdefault(cell.task, {})[cell.series] = None
            if cell.task in mean:
                found[None][cell.series] = None
        return {task: [*series] for task, series in found.items()}

    @cached_property
    def lengths(self) -> list[int]:
        """Lengths in tokens, ascending."""
        return sorted({cell.length for cell in self.cells})

    def model(self, name: str) -> Mapping[str, Any]:
        """The settings' entry of a model, empty if there is none."""
        entry = (self.settings.get("models") or {}).get(name)
        return entry if isinstance(entry, dict) else {}

    def method_settings(self, series: Series) -> Mapping[str, Any]:
        """What a series' method was set to, empty where the settings do not say."""
        methods = self.model(series.model).get("methods") or {}
        return methods.get(series.method) or {}

    def find(self, task: str, series: Series, length: int) -> CellStats | None:
        """The cell, None if the suite has none there."""
        return self._by_place.get((task, series, length))

    def line(self, task: str | None, series: Series, profile: str) -> list[Point]:
        """The points of a series, lengths ascending; `task` None averages over `mean_tasks`.

        The average of a length exists only where every one of them has a finished sample,
        so that no two of its points are averages of different tasks.
        """
        points = []
        tasks = [task] if task else self.mean_tasks
        for length in self.lengths:
            found = [self.find(t, series, length) for t in tasks]
            cells = [cell for cell in found if cell is not None]
            scores = [score for cell in cells if (score := cell.score(profile)) is not None]
            if not found or len(scores) < len(found):
                continue
            value = average(scores) if len(scores) > 1 else scores[0]
            counts = sum(c.finished for c in cells), sum(c.asked for c in cells)
            points.append(Point(length, value, *counts))
        return points
