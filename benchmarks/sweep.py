"""The sweep: every owed sample of a plan, through a pool or an endpoint, into the store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from benchmarks.admission import Admission
from benchmarks.display import Counts, Heard, SweepDisplay
from benchmarks.doctor.findings import accepted_settings
from benchmarks.ledger import LedgerRow, ledger
from benchmarks.methods import make_method
from benchmarks.plan import ModelPlan, Plan, check_unchanged
from benchmarks.provenance import command_line, provenance
from benchmarks.store import Cell, Store
from benchmarks.stored_chat import Asking, StoredChat
from benchmarks.watch.metrics import metrics_at
from benchmarks.watch.signals import run_until_term, term_as_interrupt
from benchmarks.watch.state import Health, StateFile, network_warning
from core.context import Context
from core.errors import HarnessError, ServerDied, UsageError
from core.evidence import Placed, placed
from core.rollout import THREADS, failed, off_loop, rollout
from core.types import Answer, Failure, Method, Problem, Sample
from serving.client import Client
from serving.limits.budget import Budget
from tasks.scoring import Scores, scored
from tasks.task import Coordinates, Materials

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answering:
    """A model that answers. `cache_tokens`: what its server holds at once, None if unknown.
    `examined`: whether the server does what it is asked, once the client is open; see
    benchmarks/doctor. None for a pool of our own, whose settings are ours."""

    client: Client
    cache_tokens: int | None = None
    examined: Callable[[], Awaitable[list[str]]] | None = None


Answers = Callable[[ModelPlan], AbstractAsyncContextManager[Answering]]
"""Waits for a model, and gives its place to others when the context ends."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that is open. `health`: see Health."""

    answers: Answers
    health: Health = dict


class Server(Protocol):
    """Where models answer while the context manager is open. `work`: what each owes, by the name
    that it is served as."""

    def __call__(self, work: Mapping[str, float]) -> AbstractContextManager[Serving]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """`concurrency`: samples in work at once. `tokens_in_flight`: prompt and reply budget
    of all requests at the server; None takes what the server says that it holds, else
    TOKENS_PER_REQUEST for each sample."""

    concurrency: int
    tokens_in_flight: int | None = None


TOKENS_PER_REQUEST = 8192
"""MemAgent's window: a pool sized for `concurrency` agents holds so many tokens for each."""


ROUNDS_AGAIN = 2
"""How often what failed is tried again at the end of a run."""
MAY_PASS = frozenset({"request_failed", "timeout", "bad_reply"})
"""Kinds of failures that say nothing of the sample: its finished turns are kept, and it is tried
again. The others would fail again."""


@dataclass(frozen=True, slots=True)
class Job:
    """One owed draw of a sample. `work` is its estimated prompt tokens."""

    cell: Cell
    index: int
    draw: int
    work: float


def sweep(
    plan: Plan,
    run_dir: Path,
    server: Server,
    limits: dict[str, Limits],
    *,
    metrics_port: int | None = None,
    budget: Budget | None = None,
    heard: Heard | None = None,
) -> list[LedgerRow]:
    """Runs what is owed, and returns the ledger of the whole run.

    Models run side by side as far as the server has room; the samples of a model's cells run
    together, the longest first, so that the pool stays full to the end. What failed is tried
    again at the end. A model whose server does not start, or dies for good, costs its own cells,
    which stay owed. Its state is written to the run's folder, and told as metrics on a port of
    loopback where one is given (benchmarks/watch). A budget goes on from what the run has cost.
    `heard` is told each turn that a server answered; what it says is shown.

    Raises:
        SettingsChanged: the folder holds a run with other settings.
        HarnessError: a fatal one, or all models are lost. All finished turns are kept; the same
            command goes on.
        KeyboardInterrupt: stopped by Ctrl-C or a TERM signal; likewise.
    """
    with Store.write(run_dir) as store, term_as_interrupt():
        stored = store.settings()
        if stored is None:
            store.set_up(plan.settings, plan.cells)
        else:
            check_unchanged(stored, plan.settings, run_dir)
            store.accept(accepted_settings(plan.accepted))
            plan = replace(plan, cells=tuple(store.cells()))  # the same ones, with the run's ids
        store.begin_session(provenance(command_line()), datetime.now(UTC).isoformat("T", "seconds"))
        if budget is not None:
            before = store.spent()
            budget.go_on(before.usd if before else 0.0, store.keep_spent)
        jobs = {name: _owed(plan, name, store) for name in plan.models}
        display = SweepDisplay(_counts(plan, store, jobs))
        display.heard = heard or display.heard
        with (
            display,
            StateFile(run_dir, display.state),
            metrics_at(metrics_port, display.state),
        ):
            if warning := network_warning(run_dir):
                display.tell(f"warning: {warning}")
            runs = [
                _Run(plan, model, store, display, limits[name], jobs[name])
                for name, model in plan.models.items()
                if jobs[name]
            ]
            if runs:
                work: Counter[str] = Counter()
                for run in runs:
                    work[run.model.served_as] += round(run.work)
                with server(work) as serving:
                    display.health = serving.health
                    run_until_term(_side_by_side(runs, serving.answers, display))
        return ledger(store)


async def _side_by_side(runs: Sequence[_Run], answers: Answers, display: SweepDisplay) -> None:
    """Runs all models. Raises the first one's error if all of them are lost."""
    alike: dict[str, list[_Run]] = {}
    for run in runs:
        alike.setdefault(run.model.served_as, []).append(run)
    lost: list[HarnessError] = []

    async def one(name: str, place: int) -> None:
        try:
            await _one_server(alike[name], answers, display, f"{place}/{len(alike)}")
        except (ServerDied, UsageError) as error:
            known = any(str(error) == str(other) for other in lost)
            lost.append(error)
            if len(alike) > 1:
                text = "for the same reason" if known else str(error)
                display.tell(f"model {name} is lost, its samples stay owed: {text}")

    try:
        async with asyncio.TaskGroup() as group:
            for place, name in enumerate(alike, 1):
                group.create_task(one(name, place))
    except* HarnessError as errors:
        raise _first(errors) from None
    if len(lost) == len(alike):
        raise lost[0]


async def _one_server(
    runs: Sequence[_Run], answers: Answers, display: SweepDisplay, place: str
) -> None:
    """Runs the models that are the same but for the sampling, on the same replicas."""
    first = runs[0].model
    async with answers(first) as answering, answering.client as client:
        if answering.examined is None:
            await client.check(first.served_as)
        else:
            for line in await answering.examined():
                display.tell(line)
        tokens = min(run.token_limit(answering.cache_tokens) for run in runs)
        admission = Admission(tokens)
        try:
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    display.model(run.model.name, place, len(run.jobs))
                    group.create_task(run.all(client, admission))
        except* HarnessError as errors:
            raise _first(errors) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Run:
    """One model's part of a sweep."""

    def __init__(
        self,
        plan: Plan,
        model: ModelPlan,
        store: Store,
        display: SweepDisplay,
        limits: Limits,
        jobs: list[Job],
    ) -> None:
        self.plan = plan
        self.model = model
        self.store = store
        self.display = display
        self.limits = limits
        self.jobs = jobs
        self.work = sum(job.work for job in jobs)
        self.failed: list[Job] = []
        # Half of the threads: the chunks of samples that are made wait for the others.
        self._making = asyncio.Semaphore(max(1, THREADS // 2))
        self.methods: dict[str, Method] = {
            name: make_method(name, model.tokenizer, settings)
            for name, settings in model.methods.items()
        }

    def token_limit(self, cache_tokens: int | None) -> int:
        """Tokens of all requests that the server may have at once."""
        own = self.limits.concurrency * TOKENS_PER_REQUEST
        return self.limits.tokens_in_flight or cache_tokens or own

    async def all(self, client: Client, admission: Admission) -> None:
        """Works off the jobs, and tries those that failed again; a fatal error stops all."""
        ask = partial(client.turn, self.model.served_as)
        asking = Asking(ask, self.model.sampling, admission, self.display.turn)
        await self._round(self.jobs, asking, again=False)
        for _ in range(ROUNDS_AGAIN):
            jobs, self.failed = self.failed, []
            if jobs:
                await self._round(jobs, asking, again=True)

    async def _round(self, jobs: list[Job], asking: Asking, *, again: bool) -> None:
        """Runs the jobs with `concurrency` workers."""
        left = Counter(job.cell.id for job in jobs)
        queue = iter(jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.limits.concurrency, len(jobs))):
                    group.create_task(self._worker(queue, left, asking, again))
        except* HarnessError as errors:
            raise _first(errors) from None

    async def _worker(
        self, queue: Iterator[Job], left: Counter[int], asking: Asking, again: bool
    ) -> None:
        for job in queue:
            failure = await self._one(job, asking)
            if failure is not None and failure.kind in MAY_PASS:
                self.failed.append(job)
            left[job.cell.id] -= 1
            if again:
                self.display.again(failure)
            else:
                done = not left[job.cell.id]
                self.display.sample(job.work, failure, cell_done=done)

    async def _one(self, job: Job, asking: Asking) -> Failure | None:
        """Runs, scores and stores one sample; how it failed, if it did."""
        async with self._making:
            sample, unmade = await off_loop(self._made, job)
        ending: Answer | Failure
        if unmade:
            ending, scores = unmade, Scores()
        else:
            ending, scores = await self._judged(
                job, sample, await self._ending(job, sample, asking)
            )
        evidence: tuple[Placed, ...] = ()
        try:
            # After the rollout: a context that the method read is not tokenized once more.
            evidence = await off_loop(
                placed, sample.problem.context, sample.evidence, self.model.tokenizer
            )
        except Exception as error:  # evidence that is nowhere: a defect in a task, as in _made
            _raise_if_fatal(error)
            log.exception("the evidence of %s cannot be placed", sample.id)
            ending, scores = failed(error, "task_crash"), {}
        self.store.finish_sample(job.cell.id, sample, ending, scores, evidence, job.draw)
        return ending if isinstance(ending, Failure) else None

    def _made(self, job: Job) -> tuple[Sample, Failure | None]:
        """The sample; or one without content, and what kept it from being made."""
        cell, tokenizer = job.cell, self.model.tokenizer
        try:
            sample = self.plan.tasks[cell.task].sample(
                Coordinates(job.index, cell.length, self.plan.seed),
                Materials(tokenizer, self.plan.corpora),
            )
            return sample, None
        except Exception as error:  # a defect in a task must cost one sample, not the run
            name = f"{cell.task}/{cell.length}/{job.index}"
            _raise_if_fatal(error)
            log.exception("%s cannot be made", name)
            nothing = Problem(Context([]), "")
            unmade = Sample(name, cell.task, job.index, nothing, (), "any")
            return unmade, failed(error, "task_crash")

    async def _ending(self, job: Job, sample: Sample, asking: Asking) -> Answer | Failure:
        """How the rollout of a sample ends."""
        place = job.cell.id, job.index, job.draw
        chat = StoredChat(self.store, place, sample.id, asking)
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


def _owed(plan: Plan, model: str, store: Store) -> list[Job]:
    """The model's draws that have not ended well, the longest first."""
    done = store.done()
    jobs = [
        Job(cell, index, draw, _work(plan.models[model], cell))
        for cell in plan.cells
        if cell.model == model
        for draw in range(cell.draws)
        for index in range(cell.samples)
        if (cell.id, index, draw) not in done
    ]
    return sorted(jobs, key=lambda job: (-job.work, job.cell.id, job.draw, job.index))


def _work(model: ModelPlan, cell: Cell) -> float:
    """Prompt tokens that a sample costs, roughly: for order and for the time left."""
    limit = model.methods[cell.method].get("input_tokens")
    return float(min(cell.length, limit) if isinstance(limit, int) else cell.length)


def _counts(plan: Plan, store: Store, jobs: dict[str, list[Job]]) -> Counts:
    owed = [job for model_jobs in jobs.values() for job in model_jobs]
    total = sum(cell.rollouts for cell in plan.cells)
    open_cells = {job.cell.id for job in owed}
    return Counts(
        samples=total,
        cells=len(plan.cells),
        work=sum(job.work for job in owed),
        done=total - len(owed),
        cells_done=len(plan.cells) - len(open_cells),
    )
