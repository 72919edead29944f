"""Time to make the samples of a cell, over the time that the tokenizer needs for their text.

    python perf/generate.py --tokenizer DIR [--data DIR] [--samples 128] [--tasks NAME ...]

All on one core. For each task and length one line, in ms a sample:

    fill    choosing and measuring what goes into the sample
    text    rendering it and writing it to /dev/null
    floor   writing a text that is there already: no generator can be faster
    encode  the tokenizer's time for the same text, once
    ratio   (fill + text) / encode, of all samples from the first one on
    again   the same of samples whose words and documents were counted before

A document or an English word is tokenized once in a process, when it is first drawn, and its
count is remembered for all cells after: that is the difference of the last two. Corpora are
read before. The encoder is timed on the first --encoded samples. Ends with code 1 if a ratio is
above its limit (0.10 at 32K, 0.03 at 512K). Cells that cannot be made (no corpus, or one too
small for the length) are named and left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.context import Context
from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from tasks.corpora import Corpora
from tasks.measure import meter
from tasks.registry import TASKS, find_task
from tasks.words import lexicon

LIMITS = {32_768: 0.10, 524_288: 0.03}
"""Length in tokens -> the most that generating may take of the encoder's time."""

SEED = 0

Result = TypeVar("Result")


@dataclass
class Cell:
    """Seconds a sample of a cell's parts, and megabytes a sample."""

    task: str
    length: int
    fill: float = 0.0
    fill_again: float = 0.0
    text: float = 0.0
    floor: float = 0.0
    encode: float = 0.0
    megabytes: float = 0.0

    @property
    def ratio(self) -> float:
        return (self.fill + self.text) / self.encode

    @property
    def again(self) -> float:
        return (self.fill_again + self.text) / self.encode

    @property
    def limit(self) -> float:
        return LIMITS.get(self.length, float("inf"))

    def line(self) -> str:
        times = (self.fill, self.text, self.floor, self.encode)
        return (
            f"{self.task:24s}{self.length:7d} {self.megabytes:6.2f} "
            + " ".join(f"{1e3 * seconds:8.2f}" for seconds in times)
            + f" {self.ratio:7.3f} {self.again:7.3f}{'  above' if self.ratio > self.limit else ''}"
        )


def main() -> int:
    """Measures every cell on one core, prints a table and the worst ratios."""
    arguments = _arguments()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tokenizer = Tokenizer.load(arguments.tokenizer)
    corpora = Corpora(arguments.data)
    started = time.perf_counter()
    tokenizer.decode(tokenizer.encode("The tokenizer's own tables are built once."))
    meter(tokenizer)
    lexicon()
    for read in (corpora.hotpotqa, corpora.squad, corpora.essays, corpora.english_words):
        with suppress(DataMissing):
            read()
    print(
        f"tokenizer {arguments.tokenizer}, {arguments.samples} samples, one core; corpora read in "
        f"{time.perf_counter() - started:.1f} s\n"
        "task                     length     MB     fill     text    floor   encode   ratio   again"
    )
    cells: list[Cell] = []
    left_out: list[str] = []
    with Path(os.devnull).open("wb", buffering=0) as sink:
        for length in arguments.lengths:
            for name in arguments.tasks or TASKS:
                try:
                    cells.append(_measure(name, length, arguments, tokenizer, corpora, sink))
                except (DataMissing, UsageError) as error:
                    left_out.append(f"left out: {name} at {length}: {str(error)[:90]}...")
                else:
                    print(cells[-1].line(), flush=True)
    print("", *left_out, sep="\n")
    return _verdict(cells)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket"))
    parser.add_argument("--data", type=Path, help="folder with corpora")
    parser.add_argument("--samples", type=int, default=128, help="of each cell")
    parser.add_argument("--encoded", type=int, default=3, help="samples to time the encoder on")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LIMITS), help="tokens")
    parser.add_argument("--tasks", nargs="+", help="names; all that can be made if absent")
    return parser.parse_args()


def _measure(
    name: str,
    length: int,
    arguments: argparse.Namespace,
    tokenizer: Tokenizer,
    corpora: Corpora,
    sink: IO[bytes],
) -> Cell:
    task = find_task(name)
    cell = Cell(name, length)
    samples, encoded = arguments.samples, min(arguments.samples, arguments.encoded)

    def make(index: int) -> Context:
        return task.sample(
            index, length, seed=SEED, tokenizer=tokenizer, corpora=corpora
        ).problem.context

    for index in range(samples):
        seconds, context = _timed(partial(make, index))
        cell.fill += seconds / samples
        cell.text += _timed(partial(_write, context.blocks(), sink))[0] / samples
        if index < encoded:
            text = context.text()
            cell.floor += _timed(partial(_write, [text], sink))[0] / encoded
            cell.encode += _timed(partial(tokenizer.count, text))[0] / encoded
            cell.megabytes += len(text.encode()) / 1e6 / encoded
    for index in range(samples):
        cell.fill_again += _timed(partial(make, index))[0] / samples
    return cell


def _write(texts: Iterable[str], sink: IO[bytes]) -> None:
    for text in texts:
        sink.write(text.encode())


def _timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of a call, so that other work on the machine counts less, and its result."""
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def _verdict(cells: list[Cell]) -> int:
    """Prints the worst cell of each length, and whether the limits are kept."""
    kept = True
    for length in dict.fromkeys(cell.length for cell in cells):
        some = [cell for cell in cells if cell.length == length]
        for kind in ("ratio", "again"):
            worst = max(some, key=lambda cell: getattr(cell, kind))
            above = [cell.task for cell in some if getattr(cell, kind) > cell.limit]
            print(
                f"{length}: worst {kind} {getattr(worst, kind):.3f} ({worst.task}), limit "
                f"{worst.limit:.2f}: {'EXCEEDED by ' + ', '.join(above) if above else 'kept'}"
            )
        kept = kept and all(cell.ratio <= cell.limit for cell in some)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
