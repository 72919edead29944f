"""The sweep: every owed sample of a plan, through a pool or an endpoint, into the store."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from benchmarks.admission import Admission
from benchmarks.display import Counts, SweepDisplay
from benchmarks.ledger import LedgerRow, ledger
from benchmarks.methods import make_method
from benchmarks.plan import ModelPlan, Plan, check_unchanged
from benchmarks.provenance import command_line, provenance
from benchmarks.store import Cell, Store
from benchmarks.stored_chat import Ask, StoredChat
from core.context import Context
from core.errors import HarnessError, ServerDied, UsageError
from core.evidence import Placed, place
from core.rollout import failed, rollout
from core.types import Answer, Failure, Method, Problem, Sample
from serving.client import Client
from tasks.scoring import Scores, scored
from tasks.task import Coordinates, Materials

log = logging.getLogger(__name__)


class Server(Protocol):
    """Where a model answers while the context manager is open."""

    def __call__(self, model: ModelPlan) -> AbstractContextManager[Client]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """`concurrency`: samples in work at once. `tokens_in_flight`: prompt and reply budget
    of all requests at the server; None takes TOKENS_PER_REQUEST for each sample."""

    concurrency: int
    tokens_in_flight: int | None = None


TOKENS_PER_REQUEST = 8192
"""MemAgent's window: a pool sized for `concurrency` agents holds so many tokens for each."""


@dataclass(frozen=True, slots=True)
class Job:
    """One owed sample. `work` is its estimated prompt tokens."""

    cell: Cell
    index: int
    work: float


def sweep(plan: Plan, run_dir: Path, server: Server, limits: dict[str, Limits]) -> list[LedgerRow]:
    """Runs what is owed, and returns the ledger of the whole run.

    Models run one after another, each with the whole machine (one pool for those that are the
    same but for the sampling); the samples of a model's cells run together, the longest first,
    so that the pool stays full to the end.

    Raises:
        SettingsChanged: the folder holds a run with other settings.
        HarnessError: a fatal one. All finished turns are kept; the same command goes on.
        KeyboardInterrupt: stopped by Ctrl-C or a TERM signal; likewise.
    """
    with Store.write(run_dir) as store, _term_as_interrupt():
        stored = store.settings()
        if stored is None:
            store.set_up(plan.settings, plan.cells)
        else:
            check_unchanged(stored, plan.settings, run_dir)
            plan = replace(plan, cells=tuple(store.cells()))  # the same ones, with the run's ids
        store.begin_session(provenance(command_line()), datetime.now(UTC).isoformat("T", "seconds"))
        jobs = {name: _owed(plan, name, store) for name in plan.models}
        with SweepDisplay(_counts(plan, store, jobs)) as display:
            for alike in _pools(plan, jobs):
                with server(alike[0]) as client:
                    for model in alike:
                        owed, place = jobs[model.name], [*plan.models].index(model.name) + 1
                        display.model(model.name, place, len(plan.models), len(owed))
                        run = _Run(plan, model, store, display, limits[model.name])
                        asyncio.run(run.all(owed, client))
        return ledger(store)


class _Run:
    """One model's part of a sweep."""

    def __init__(
        self, plan: Plan, model: ModelPlan, store: Store, display: SweepDisplay, limits: Limits
    ) -> None:
        self.plan = plan
        self.model = model
        self.store = store
        self.display = display
        self.limits = limits
        self.admission = Admission(
            limits.tokens_in_flight or limits.concurrency * TOKENS_PER_REQUEST
        )
        self.methods: dict[str, Method] = {
            name: make_method(name, model.tokenizer, settings)
            for name, settings in model.methods.items()
        }

    async def all(self, jobs: list[Job], client: Client) -> None:
        """Works off the jobs with `concurrency` workers; the first fatal error stops all."""
        left = {job.cell.id: 0 for job in jobs}
        for job in jobs:
            left[job.cell.id] += 1
        queue = iter(jobs)
        async with client:
            await client.check(self.model.served_as)
            ask = partial(client.turn, self.model.served_as)
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.limits.concurrency, len(jobs))):
                        group.create_task(self._worker(queue, left, ask))
            except* HarnessError as errors:
                first: BaseException = errors
                while isinstance(first, BaseExceptionGroup):
                    first = first.exceptions[0]
                raise first from None

    async def _worker(self, queue: Iterator[Job], left: dict[int, int], ask: Ask) -> None:
        for job in queue:
            failed = await self._one(job, ask)
            left[job.cell.id] -= 1
            self.display.sample(job.work, failed=failed, cell_done=not left[job.cell.id])

    async def _one(self, job: Job, ask: Ask) -> bool:
        """Runs, scores and stores one sample; True if it failed."""
        sample, evidence, unmade = await asyncio.to_thread(self._made, job)
        ending: Answer | Failure
        if unmade:
            ending, scores = unmade, Scores()
        else:
            ending, scores = await self._judged(job, sample, await self._ending(job, sample, ask))
        self.store.finish_sample(job.cell.id, sample, ending, scores, evidence)
        return isinstance(ending, Failure)

    def _made(self, job: Job) -> tuple[Sample, tuple[Placed, ...], Failure | None]:
        """The sample and where its evidence stands; or one without content, and what kept it
        from being made."""
        cell, tokenizer = job.cell, self.model.tokenizer
        try:
            sample = self.plan.tasks[cell.task].sample(
                Coordinates(job.index, cell.length, self.plan.seed),
                Materials(tokenizer, self.plan.corpora),
            )
            if not sample.evidence:
                return sample, (), None
            return sample, place(sample.problem.context, sample.evidence, tokenizer).evidence, None
        except Exception as error:  # a defect in a task must cost one sample, not the run
            name = f"{cell.task}/{cell.length}/{job.index}"
            _raise_if_fatal(error)
            log.exception("%s cannot be made", name)
            nothing = Problem(Context([]), "")
            unmade = Sample(name, cell.task, job.index, nothing, (), "any")
            return unmade, (), failed(error, "task_crash")

    async def _ending(self, job: Job, sample: Sample, ask: Ask) -> Answer | Failure:
        """How the rollout of a sample ends."""
        chat = StoredChat(
            self.store,
            job.cell.id,
            job.index,
            sample.id,
            ask=ask,
            sampling=self.model.sampling,
            admission=self.admission,
            on_turn=self.display.turn,
        )
        trajectory = await rollout(sample, self.methods[job.cell.method], chat)
        ending = trajectory.answer or trajectory.failure
        if ending is None:
            raise ServerDied(f"sample {sample.id} ended with neither an answer nor an error")
        return ending

    async def _judged(
        self, job: Job, sample: Sample, ending: Answer | Failure
    ) -> tuple[Answer | Failure, Scores]:
        """How the sample ended, with its scores. A failure is scored as silence: it stays in the
        denominator."""
        answer = ending if isinstance(ending, Answer) else Answer("", None)
        try:
            return ending, await scored(self.plan.tasks[job.cell.task].scorer, answer, sample)
        except Exception as error:  # a defect in a scorer must cost one sample, not the run
            _raise_if_fatal(error)
            if isinstance(ending, Failure):
                return ending, {}
            log.exception("%s cannot be scored", sample.id)
            return failed(error, "scorer_crash"), {}


def _raise_if_fatal(error: Exception) -> None:
    """Raises what no other sample can go on after. A UsageError in the middle of a run is about
    the sample at hand: what is wrong for all of them the plan has found."""
    if isinstance(error, HarnessError) and error.fatal and not isinstance(error, UsageError):
        raise error


def _pools(plan: Plan, jobs: Mapping[str, Sequence[Job]]) -> list[list[ModelPlan]]:
    """The models that owe samples, those together that one pool serves."""
    pools: dict[str, list[ModelPlan]] = {}
    for model in plan.models.values():
        if jobs[model.name]:
            pools.setdefault(model.served_as, []).append(model)
    return [*pools.values()]


def _owed(plan: Plan, model: str, store: Store) -> list[Job]:
    """The model's samples that have not ended well, the longest first."""
    done = store.done()
    jobs = [
        Job(cell, index, _work(plan.models[model], cell))
        for cell in plan.cells
        if cell.model == model
        for index in range(cell.samples)
        if (cell.id, index) not in done
    ]
    return sorted(jobs, key=lambda job: (-job.work, job.cell.id, job.index))


def _work(model: ModelPlan, cell: Cell) -> float:
    """Prompt tokens that a sample costs, roughly: for order and for the time left."""
    limit = model.methods[cell.method].get("input_tokens")
    return float(min(cell.length, limit) if isinstance(limit, int) else cell.length)


def _counts(plan: Plan, store: Store, jobs: dict[str, list[Job]]) -> Counts:
    owed = [job for model_jobs in jobs.values() for job in model_jobs]
    total = sum(cell.samples for cell in plan.cells)
    open_cells = {job.cell.id for job in owed}
    return Counts(
        samples=total,
        cells=len(plan.cells),
        work=sum(job.work for job in owed),
        done=total - len(owed),
        cells_done=len(plan.cells) - len(open_cells),
    )


@contextmanager
def _term_as_interrupt() -> Iterator[None]:
    """A TERM signal stops a sweep the way Ctrl-C does."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
