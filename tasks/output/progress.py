"""How far a command is that makes many samples: a bar on a terminal, a line now and then else."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TextIO

LINE_EVERY_S, BAR_EVERY_S = 5.0, 0.2
BAR = 24


class Progress:
    """`cells`: name -> (samples, tokens of each). Nothing is shown before LINE_EVERY_S, so that
    quick commands stay quiet."""

    def __init__(self, cells: Mapping[str, tuple[int, int]], file: TextIO | None = None) -> None:
        self._cells = cells
        self._made = dict.fromkeys(cells, 0)
        self._file = file or sys.stderr
        self._work = sum(samples * tokens for samples, tokens in cells.values())
        self._found = 0
        self._started = time.monotonic()
        self._next = self._started + LINE_EVERY_S

    def found(self, cell: str) -> None:
        """A cell was finished before."""
        self.made(cell, self._cells[cell][0])
        self._found = self._done()

    def made(self, cell: str, samples: int) -> None:
        """So many samples of a cell are there now."""
        self._made[cell] = samples
        now = time.monotonic()
        if now >= self._next:
            terminal = self._file.isatty()
            self._next = now + (BAR_EVERY_S if terminal else LINE_EVERY_S)
            line = self.line(cell, now - self._started)
            width = shutil.get_terminal_size().columns - 1
            # A bar is written over itself.
            text = f"\r{line:{width}.{width}}" if terminal else f"{line}\n"
            print(text, end="", file=self._file, flush=True)

    def finish(self) -> None:
        """Ends the bar, so that what is printed next has a line of its own."""
        if self._file.isatty() and self._next > self._started + LINE_EVERY_S:
            print(file=self._file)

    def line(self, cell: str, elapsed_s: float) -> str:
        """The bar, the cell in work, and the time that is left."""
        done = self._done()
        share = done / max(self._work, 1)
        full = round(BAR * share)
        finished = sum(self._made[name] == samples for name, (samples, _) in self._cells.items())
        # What an earlier start of the command has made says nothing of this one's speed.
        left = (self._work - done) * elapsed_s / max(done - self._found, 1)
        return (
            f"[{'#' * full}{'.' * (BAR - full)}] {share:4.0%}  cells {finished}/{len(self._cells)}"
            f"  left {int(left) // 60}:{int(left) % 60:02}  {cell}: {self._made[cell]} of "
            f"{self._cells[cell][0]} samples"
        )

    def _done(self) -> int:
        return sum(self._made[name] * tokens for name, (_, tokens) in self._cells.items())
