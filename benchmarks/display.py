"""What a sweep shows while it runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.watch.state import Health, RunState, here
from core.types import Failure, Turn

LINE_EVERY_S = 15.0
BAR_COLUMNS = 40
LONGEST_FAILURE = 400
"""Characters of a failure's text in a line; the ledger and the report have all of it."""

Heard = Callable[[Turn], str]


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
    usd: float = 0.0
    work_done: float = 0.0
    started: float = field(default_factory=time.monotonic)


class SweepDisplay:
    """A context manager; `model` is told of each as it begins, `turn` and `sample` of each as
    it ends. `health` asks the server how its replicas are; `heard` is told each turn, and what it
    says of it, if anything, is shown. Colours and the bar are a terminal's."""

    def __init__(self, counts: Counts, console: Console | None = None) -> None:
        self.counts = counts
        self.health: Health = dict
        self.last_failure: str | None = None
        self.heard: Heard = lambda turn: ""
        self._console = console or Console(stderr=True)
        self._moves = self._console.is_terminal and not self._console.is_dumb_terminal
        self._screen = Live(
            console=self._console,
            get_renderable=self._drawn,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._next_line = time.monotonic() + LINE_EVERY_S
        self._told_failure: str | None = None

    def __enter__(self) -> SweepDisplay:
        if self._moves:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._moves:
            self._screen.stop()
        self._lines()

    def model(self, name: str, place: str, owed: int) -> None:
        """The work on a model begins, at `place` (`2/3`), with `owed` samples to run."""
        if place != "1/1":
            self.tell(f"model {place} {name}  {owed} samples owed")

    def tell(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def again(self, failure: Failure | None) -> None:
        """A sample that had failed was tried again."""
        self.counts.errors -= failure is None
        self._note(failure)

    def turn(self, turn: Turn) -> None:
        """A turn came from the server."""
        if not self.counts.turns:
            self.counts.started = time.monotonic() - turn.seconds  # not while the pool started
        self.counts.turns += 1
        self.counts.tokens += turn.prompt_tokens + turn.completion_tokens
        self.counts.usd += turn.usd
        self._line_now_and_then()
        if text := self.heard(turn):
            self.tell(text)

    def sample(self, work: float, failure: Failure | None, *, cell_done: bool) -> None:
        """A sample ended."""
        self.counts.work_done += work
        self.counts.done += 1
        self.counts.errors += failure is not None
        self.counts.cells_done += cell_done
        self._note(failure)
        self._line_now_and_then()

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
            usd=c.usd,
            left_s=self._left_s(elapsed),
            last_failure=self.last_failure,
            replicas=dict(self.health()),
            ended=ended,
        )

    def _note(self, failure: Failure | None) -> None:
        if failure is not None:
            text = " ".join(f"{failure.kind}: {failure.message}".split())
            self.last_failure = text[:LONGEST_FAILURE]

    def _line_now_and_then(self) -> None:
        if not self._moves and time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self._lines()

    def _lines(self) -> None:
        """The state as plain lines; a failure is told once."""
        self.tell(self.line())
        if self.last_failure != self._told_failure:
            self._told_failure = self.last_failure
            self.tell(f"last failure: {self.last_failure}")

    def _drawn(self) -> RenderableType:
        """The state as a terminal shows it."""
        state, c = self.state(), self.counts
        done = 1.0 if c.work <= 0 else min(self._progress() / c.work, 1.0)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(1.0, done, width=BAR_COLUMNS), f"{100 * done:3.0f}%")
        rows: list[RenderableType] = [bar, Text(state.line(), overflow="ellipsis", no_wrap=True)]
        if self.last_failure is not None:
            style = "red" if state.errors else ""
            rows.append(Text(f"last failure: {self.last_failure}", style=style))
        return Group(*rows)

    def _progress(self) -> float:
        # Samples in flight count through their tokens, so that long ones show from the start.
        # The estimate of the work leaves out templates and replies: their share is measured.
        c = self.counts
        return max(c.work_done, min(c.tokens * 0.75, c.work))

    def _left_s(self, elapsed: float) -> float | None:
        c, progress = self.counts, self._progress()
        if progress < 0.01 * c.work:
            return None
        return max(c.work - progress, 0) * elapsed / max(progress, 1.0)
