"""Time to make the samples of a cell, over the time that the tokenizer needs for their text.

    python perf/generate.py --tokenizer DIR [--data DIR] [--samples 128] [--tasks NAME ...]

All on one core. For each task and length one line; times in ms a sample, the least of --repeats:

    fill    choosing and measuring what goes into a sample, everything counted before
    text    rendering it and writing it to /dev/null
    floor   writing a text that is there already: no generator can be faster
    encode  the tokenizer's time for the same text, once
    first   (fill + text) / encode of the first process on a machine: documents and words are
            tokenized when they are first drawn, and their counts are kept on disk
    later   the same of every later process, which finds those counts
    again   the same of samples that this process has made before: all of its tables are there

Each `first` and `later` is a process of its own, forked where the tokenizer is loaded and the
corpora are read and nothing is counted; `first` begins with an empty cache folder, so the
user's own is neither read nor written. The encoder is timed on the first --encoded samples.

Ends with code 1 if `later` or `again` is above its limit (0.10 at 32K, 0.03 at 512K); `first`
is compared with the same limit and told. Cells that cannot be made (no corpus, or one too small
for the length) are named and left out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
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
from tasks.corpora.read import Corpora
from tasks.haystack.measure import meter
from tasks.registry import TASKS, find_task
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials

LIMITS = {32_768: 0.10, 524_288: 0.03}
"""Length in tokens -> the most that generating may take of the encoder's time."""

NOMINAL = {32_768: 28_000, 524_288: 448_000}
"""The lengths by which the published numbers of documents go, nearest to those."""

SEED = 0
KINDS = ("first", "later", "again")
HEADS = ("task", "length", "MB", "fill", "text", "floor", "encode", *KINDS)
FORM = "{:24s}{:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}{}"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one process for all samples of a cell. `fill_again`: of making them again."""

    fill: float
    fill_again: float
    text: float


@dataclass(frozen=True, slots=True)
class Text:
    """Seconds and bytes a sample of what must be done with its text in any case."""

    floor: float
    encode: float
    size: float


@dataclass(frozen=True, slots=True)
class Cell:
    """The least times of a cell, in seconds a sample."""

    task: str
    length: int
    limit: float
    first: float
    later: float
    again: float
    text: float
    whole: Text

    def ratio(self, kind: str) -> float:
        """Of KINDS: making a sample over encoding it."""
        fill: float = getattr(self, kind)
        return (fill + self.text) / self.whole.encode

    def line(self) -> str:
        times = (self.again, self.text, self.whole.floor, self.whole.encode)
        above = [kind for kind in KINDS if self.ratio(kind) > self.limit]
        return FORM.format(
            self.task,
            self.length,
            f"{self.whole.size / 1e6:.2f}",
            *(f"{1e3 * seconds:.2f}" for seconds in times),
            *(f"{self.ratio(kind):.3f}" for kind in KINDS),
            f"  above: {', '.join(above)}" if above else "",
        )


@dataclass(frozen=True, slots=True)
class Bench:
    """What every process begins with."""

    tokenizer: Tokenizer
    corpora: Corpora
    samples: int
    encoded: int

    def make(self, name: str, length: int, index: int) -> Context:
        sample = find_task(name).sample(
            Coordinates(index, length, SEED), Materials(self.tokenizer, self.corpora)
        )
        return sample.problem.context


def main() -> int:
    """Measures every cell on one core, prints a table and the worst ratios."""
    arguments = _arguments()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started = time.perf_counter()
    bench = _loaded(arguments)
    print(
        f"tokenizer {arguments.tokenizer}, {arguments.samples} samples, one core; tokenizer and "
        f"corpora read in {time.perf_counter() - started:.1f} s\n" + FORM.format(*HEADS, "")
    )
    cells: list[Cell] = []
    left_out: list[str] = []
    for length in arguments.lengths:
        for name in arguments.tasks or TASKS:
            try:
                cells.append(_measure(bench, name, length, arguments.repeats))
            except (DataMissing, UsageError) as error:
                left_out.append(f"left out: {name} at {length}: {str(error)[:90]}...")
            else:
                print(cells[-1].line(), flush=True)
    print("", *left_out, sep="\n")
    return _verdict(cells)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket-base"))
    parser.add_argument("--data", type=Path, help="folder with corpora")
    parser.add_argument("--samples", type=int, default=128, help="of each cell")
    parser.add_argument("--encoded", type=int, default=3, help="samples to time the encoder on")
    parser.add_argument("--repeats", type=int, default=2, help="of everything; the least counts")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LIMITS), help="tokens")
    parser.add_argument("--tasks", nargs="+", help="names; all that can be made if absent")
    return parser.parse_args()


def _loaded(arguments: argparse.Namespace) -> Bench:
    """Reads everything and counts nothing: `meter` builds the tokenizer's own tables."""
    tokenizer, corpora = Tokenizer.load(arguments.tokenizer), Corpora(arguments.data)
    tokenizer.decode(tokenizer.encode("The tokenizer's own tables are built once."))
    meter(tokenizer)
    lexicon()
    for read in (corpora.hotpotqa, corpora.squad, corpora.essays, corpora.english_words):
        with suppress(DataMissing):
            read()
    return Bench(tokenizer, corpora, arguments.samples, arguments.encoded)


def _measure(bench: Bench, name: str, length: int, repeats: int) -> Cell:
    limit = LIMITS.get(length, float("inf"))
    if name.endswith("_published"):
        length = NOMINAL.get(length, length)
    firsts: list[Times] = []
    laters: list[Times] = []
    texts: list[Text] = []
    for _ in range(repeats):
        cache = tempfile.mkdtemp()
        try:
            os.environ["XDG_CACHE_HOME"] = cache
            firsts.append(_in_a_process(partial(_make_all, bench, name, length)))
            laters.append(_in_a_process(partial(_make_all, bench, name, length)))
            texts.append(_in_a_process(partial(_handle_texts, bench, name, length)))
        finally:
            shutil.rmtree(cache)
    return Cell(
        name,
        length,
        limit,
        first=_least(firsts, "fill") / bench.samples,
        later=_least(laters, "fill") / bench.samples,
        again=_least([*firsts, *laters], "fill_again") / bench.samples,
        text=_least([*firsts, *laters], "text") / bench.samples,
        whole=Text(_least(texts, "floor"), _least(texts, "encode"), texts[0].size),
    )


def _least(measured: Sequence[Times] | Sequence[Text], field: str) -> float:
    return min(float(getattr(one, field)) for one in measured)


def _in_a_process(call: Callable[[], Result]) -> Result:
    """What `call` returns in a fork of this process, or the error that it raises there."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(call())
        except (DataMissing, UsageError) as error:
            there.send(error)

    process = fork.Process(target=run)
    process.start()
    there.close()
    sent = here.recv()
    process.join()
    if isinstance(sent, Exception):
        raise sent
    result: Result = sent
    return result


def _make_all(bench: Bench, name: str, length: int) -> Times:
    """Makes and writes all samples, then makes them again."""
    fill = fill_again = text = 0.0
    with Path(os.devnull).open("wb", buffering=0) as sink:
        for index in range(bench.samples):
            seconds, context = _timed(partial(bench.make, name, length, index))
            fill += seconds
            text += _timed(partial(_write, context.blocks(), sink))[0]
    for index in range(bench.samples):
        fill_again += _timed(partial(bench.make, name, length, index))[0]
    return Times(fill, fill_again, text)


def _handle_texts(bench: Bench, name: str, length: int) -> Text:
    """Writes and encodes the texts of the first samples."""
    count = min(bench.samples, bench.encoded)
    floor = encode = size = 0.0
    with Path(os.devnull).open("wb", buffering=0) as sink:
        for index in range(count):
            text = bench.make(name, length, index).text()
            floor += _timed(partial(_write, [text], sink))[0] / count
            encode += _timed(partial(bench.tokenizer.count, text))[0] / count
            size += len(text.encode()) / count
    return Text(floor, encode, size)


def _write(texts: Iterable[str], sink: IO[bytes]) -> None:
    for text in texts:
        sink.write(text.encode())


def _timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of a call, so that other work on the machine counts less, and its result."""
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def _verdict(cells: list[Cell]) -> int:
    """Prints the worst cell of each limit, whether it is kept, and where the time goes."""
    kept = True
    for limit in dict.fromkeys(cell.limit for cell in cells):
        some = [cell for cell in cells if cell.limit == limit]
        for kind in KINDS:
            worst = max(some, key=lambda cell: cell.ratio(kind))
            above = [cell.task for cell in some if cell.ratio(kind) > limit]
            kept = kept and (kind == "first" or not above)
            print(
                f"limit {limit:.2f}: worst `{kind}` {worst.ratio(kind):.3f} ({worst.task}): "
                f"{'EXCEEDED by ' + ', '.join(above) if above else 'kept'}"
            )
        spent = [sum(cell.again for cell in some), sum(cell.text for cell in some)]
        floor = sum(cell.whole.floor for cell in some)
        print(
            f"limit {limit:.2f}: {sum(spent) / max(floor, 1e-9):.0f} times the floor; of the "
            f"rest, {spent[0] / (sum(spent) - floor):.0%} is choosing and measuring, "
            f"{(spent[1] - floor) / (sum(spent) - floor):.0%} rendering"
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
