"""Time to make the samples of a cell, over the time to tokenize their texts.

    python perf/generate.py --tokenizer DIR [--data DIR] [--samples 128] [--tasks NAME ...]

All on one core, CPU seconds. For each task and length one line, in ms a sample:

    make    choosing and measuring what goes into a sample, and writing its text to /dev/null
    encode  the tokenizer's time for the same text
    ratio   make / encode: at most 1.3, and 0.1 where units repeat (noise, essays, lists of words)

A cell is made in a process of its own, forked where the tokenizer is loaded and the corpora are
read and nothing is counted: the first draw of a document or word is part of `make`. Its texts are
tokenized in another, so that both begin with the tokenizer's own cache empty. Ends with code 1 if
a cell is above its bar. Cells that cannot be made (no corpus, or one too small) are left out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.haystack.measure import meter
from tasks.registry import TASKS, find_task
from tasks.ruler.cwe import CommonWords
from tasks.ruler.fwe import FrequentWords
from tasks.ruler.niah import Niah
from tasks.ruler.vt import VariableTracking
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials, Task

BAR, REPEATING_BAR = 1.3, 0.1
NOMINAL = {8_192: 7_000, 32_768: 28_000, 524_288: 448_000}
"""The lengths by which the published numbers of documents go, nearest to those."""

SEED = 0
FORM = "{:24s}{:>8} {:>7} {:>9} {:>9} {:>7}{}"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timed:
    """CPU seconds a sample. `size`: bytes of a text."""

    task: str
    length: int
    bar: float
    make: float
    encode: float
    size: float

    @property
    def ratio(self) -> float:
        return self.make / self.encode

    def line(self) -> str:
        times = (f"{1e3 * seconds:.2f}" for seconds in (self.make, self.encode))
        above = f"  ABOVE {self.bar}" if self.ratio > self.bar else ""
        size = f"{self.size / 1e6:.2f}"
        return FORM.format(self.task, self.length, size, *times, f"{self.ratio:.3f}", above)


def main() -> int:
    """Measures every cell on one core, prints a table."""
    arguments = _arguments()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    materials = _loaded(arguments)
    print(f"tokenizer {arguments.tokenizer}, {arguments.samples} samples a cell, one core")
    print(FORM.format("task", "length", "MB", "make ms", "encode ms", "ratio", ""))
    above: list[str] = []
    for length in arguments.lengths:
        for name in arguments.tasks or TASKS:
            timed = _measured(materials, name, length, arguments.samples)
            if isinstance(timed, str):
                print(f"{name} at {length} left out: {timed[:90]}...", flush=True)
                continue
            print(timed.line(), flush=True)
            above += [f"{name} {length}"] * (timed.ratio > timed.bar)
    print(f"above the bar: {', '.join(above) or 'none'}")
    return 1 if above else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket-base"))
    parser.add_argument("--data", type=Path, help="folder with corpora")
    parser.add_argument("--samples", type=int, default=128, help="of each cell")
    parser.add_argument("--lengths", type=int, nargs="+", default=[32_768], help="tokens")
    parser.add_argument("--tasks", nargs="+", help="names; all that can be made if absent")
    return parser.parse_args()


def _loaded(arguments: argparse.Namespace) -> Materials:
    """Reads everything and counts nothing: `meter` builds the tokenizer's own tables."""
    tokenizer, corpora = Tokenizer.load(arguments.tokenizer), Corpora(arguments.data)
    tokenizer.decode(tokenizer.encode("The tokenizer's own tables are built once."))
    meter(tokenizer)
    lexicon()
    for read in (corpora.hotpotqa, corpora.squad, corpora.essays, corpora.english_words):
        with suppress(DataMissing):
            read()
    return Materials(tokenizer, corpora)


def _bar(task: Task) -> float:
    """The most that making may take of the tokenizer's time."""
    repeats = isinstance(task, CommonWords | FrequentWords | VariableTracking) or (
        isinstance(task, Niah) and task.haystack != "needle"
    )
    return REPEATING_BAR if repeats else BAR


def _measured(materials: Materials, name: str, length: int, samples: int) -> Timed | str:
    task = find_task(name)
    if name.partition("@")[0].endswith("_published"):
        length = NOMINAL.get(length, length)
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder) / str(index) for index in range(samples)]
        made = _in_a_process(partial(_make, materials, task, length, texts))
        if isinstance(made, str):
            return made
        encoded = _in_a_process(partial(_encode, materials.tokenizer, texts))
        size = sum(path.stat().st_size for path in texts)
    return Timed(name, length, _bar(task), made / samples, encoded / samples, size / samples)


def _make(materials: Materials, task: Task, length: int, texts: Sequence[Path]) -> float | str:
    """Seconds to make all samples and write them to /dev/null; their texts are kept, untimed."""
    total = 0.0
    with Path(os.devnull).open("wb", buffering=0) as sink:

        def made(index: int) -> Sample:
            sample = task.sample(Coordinates(index, length, SEED), materials)
            for block in sample.problem.context.blocks():
                sink.write(block.encode())
            return sample

        for index, path in enumerate(texts):
            try:
                seconds, sample = _timed(partial(made, index))
            except (DataMissing, UsageError) as error:
                return str(error)
            total += seconds
            path.write_bytes(sample.problem.context.text().encode())
    return total


def _encode(tokenizer: Tokenizer, texts: Sequence[Path]) -> float:
    """Seconds to tokenize the texts."""
    read = (path.read_bytes().decode() for path in texts)
    return sum(_timed(partial(tokenizer.count, text))[0] for text in read)


def _in_a_process(call: Callable[[], Result]) -> Result:
    """What `call` returns in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: there.send(call()))
    process.start()
    there.close()
    result: Result = here.recv()
    process.join()
    return result


def _timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of a call, so that other work on the machine counts less, and its result."""
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


if __name__ == "__main__":
    sys.exit(main())
