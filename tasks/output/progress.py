"""How far a command is that makes many samples: a bar on a terminal, a line now and then else."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 5.0
"""Nothing is shown before, so that quick commands stay quiet; lines come so often."""


class SamplesProgress:
    """`cells`: name -> (samples, tokens of each)."""

    def __init__(
        self, cells: Mapping[str, tuple[int, int]], console: Console | None = None
    ) -> None:
        self._cells = cells
        self._made = dict.fromkeys(cells, 0)
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self._console,
        )
        total = sum(samples * tokens for samples, tokens in cells.values())
        self._work = self._bar.add_task("", total=max(total, 1))
        self._next = time.monotonic() + LINE_EVERY_S

    def made(self, cell: str, samples: int) -> None:
        """So many samples of a cell are there now."""
        self._bar.advance(self._work, (samples - self._made[cell]) * self._cells[cell][1])
        self._made[cell] = samples
        self._bar.update(self._work, description=self._where(cell))
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LINE_EVERY_S
        if self._console.is_terminal:
            self._bar.start()
        else:
            share = self._bar.tasks[0].percentage
            self._console.print(f"{share:.0f}%  {self._where(cell)}", soft_wrap=True)

    def finish(self) -> None:
        """Ends the bar, so that what is printed next has a line of its own."""
        if self._bar.live.is_started:
            self._bar.stop()

    def _where(self, cell: str) -> str:
        finished = sum(self._made[name] == samples for name, (samples, _) in self._cells.items())
        made, wanted = self._made[cell], self._cells[cell][0]
        return f"cells {finished}/{len(self._cells)}  {cell}: {made} of {wanted} samples"
