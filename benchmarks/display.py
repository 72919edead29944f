"""What a sweep shows while it runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from benchmarks.watch.state import Health, RunState, here
from core.types import Turn

LINE_EVERY_S = 15.0


@dataclass(slots=True)
class Counts:
    """What has happened since this start of the command; `done` and `cells_done` count what
    earlier starts finished, too. `work` is in estimated prompt tokens."""

    samples: int
    cells: int
    work: float
    done: int = 0
    cells_done: int = 0
    errors: int = 0
    turns: int = 0
    tokens: int = 0
    work_done: float = 0.0
    started: float = field(default_factory=time.monotonic)


class SweepDisplay:
    """A context manager; `model` is told of each as it begins, `turn` and `sample` of each as
    it ends. `health` asks the server how its replicas are."""

    def __init__(self, counts: Counts, console: Console | None = None) -> None:
        self.counts = counts
        self.health: Health = dict
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            *(TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._work = self._bar.add_task(self.line(), total=counts.work)
        self._next_line = time.monotonic() + LINE_EVERY_S

    def __enter__(self) -> SweepDisplay:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._console.print(self.line(), highlight=False, soft_wrap=True)

    def model(self, name: str, place: str, owed: int) -> None:
        """The work on a model begins, at `place` (`2/3`), with `owed` samples to run."""
        if place != "1/1":
            self.tell(f"model {place} {name}  {owed} samples owed")

    def tell(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def again(self, *, failed: bool) -> None:
        """A sample that had failed was tried again."""
        self.counts.errors -= not failed

    def turn(self, turn: Turn) -> None:
        """A turn came from the server."""
        if not self.counts.turns:
            self.counts.started = time.monotonic() - turn.seconds  # not while the pool started
        self.counts.turns += 1
        self.counts.tokens += turn.prompt_tokens + turn.completion_tokens
        if self._console.is_terminal:
            self._bar.update(self._work, description=self.line())
        elif time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self._console.print(self.line(), highlight=False, soft_wrap=True)

    def sample(self, work: float, *, failed: bool, cell_done: bool) -> None:
        """A sample ended."""
        self.counts.work_done += work
        self.counts.done += 1
        self.counts.errors += failed
        self.counts.cells_done += cell_done
        self._bar.update(self._work, completed=self.counts.work_done)

    def line(self) -> str:
        """Everything in one line."""
        return self.state().line()

    def state(self, ended: str | None = None) -> RunState:
        """Everything, as numbers."""
        c = self.counts
        elapsed = max(time.monotonic() - c.started, 1e-6)
        host, process = here()
        return RunState(
            written=datetime.now(UTC),
            host=host,
            process=process,
            cells=c.cells,
            cells_done=c.cells_done,
            samples=c.samples,
            samples_done=c.done,
            errors=c.errors,
            turns=c.turns,
            turns_per_s=c.turns / elapsed,
            tokens_per_s=c.tokens / elapsed,
            left_s=self._left_s(elapsed),
            replicas=dict(self.health()),
            ended=ended,
        )

    def _left_s(self, elapsed: float) -> float | None:
        c = self.counts
        # Samples in flight count through their tokens, so that long ones show from the start.
        # The estimate of the work leaves out templates and replies: their share is measured.
        progress = max(c.work_done, min(c.tokens * 0.75, c.work))
        if progress < 0.01 * c.work:
            return None
        return max(c.work - progress, 0) * elapsed / max(progress, 1.0)
