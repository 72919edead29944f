"""All samples of a suite as files: `run.py tasks generate`.

    OUT/manifest.json               settings, and the files that are finished
    OUT/niah_single_1/8192.jsonl    one file (memagent: .json; datasets: a folder) a cell

The form `index` (default) writes a line a sample: id, question, golds, size and SHA-256 of the
context, which is made, counted and hashed as a stream and not kept: two machines that give the
same lines have the same samples, and any text is made again with `run.py tasks export`. The
other forms are those of `tasks.output.export`, with the texts: some 10 GB for the whole set.

A cell is written beside its place and renamed. What is finished is not made again: the same
command goes on after a stop. Bytes depend neither on the number of workers nor on the order.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import HarnessError, SettingsChanged, UsageError
from core.files import write_whole
from core.tokens import Tokenizer
from core.types import Json, Sample
from tasks.corpora.read import Corpora
from tasks.once import once
from tasks.output.export import export_samples
from tasks.output.progress import SamplesProgress
from tasks.registry import find_task
from tasks.task import GENERATION, Coordinates, Materials

MANIFEST = "manifest.json"
ENDINGS = {"index": ".jsonl", "ruler": ".jsonl", "memagent": ".json", "datasets": ""}


@dataclass(frozen=True, slots=True)
class CellFile:
    """A file with samples 0 to `samples` - 1 of a task at a length."""

    task: str
    length: int
    samples: int

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self.task} {self.length}"


@dataclass(frozen=True, slots=True)
class Making:
    """What all cells of a folder have in common. `tokenizer` names a folder, or one of the hub."""

    out: Path
    form: str
    seed: int
    tokenizer: str
    data: Path | None

    def file(self, cell: CellFile) -> Path:
        """Where the cell goes; a task from outside may have slashes in its name."""
        return self.out / cell.task.replace("/", "_") / f"{cell.length}{ENDINGS[self.form]}"


@dataclass(frozen=True, slots=True)
class Made:
    """A finished cell. `tokens`: of its contexts, where the task counts them; `data`: SHA-256 of
    the corpora that were read, by name."""

    cell: CellFile
    tokens: int
    data: Mapping[str, str]


def generate(
    making: Making, cells: Sequence[CellFile], workers: int, progress: SamplesProgress
) -> tuple[int, int]:
    """Makes what is missing, and returns how many cells and tokens of context that was.

    Raises:
        SettingsChanged: the folder holds samples made with other settings, or other corpora.
        UsageError, DataMissing: a cell cannot be made; tried before anything is written.
    """
    manifest = _Manifest(making)
    owed: list[CellFile] = []
    for cell in cells:
        if manifest.has(cell):
            progress.made(cell.name, cell.samples)
        else:
            owed.append(cell)
    _try_each(making, owed)
    tokens = 0
    for made in _all_made(making, owed, workers, progress):
        manifest.add(made)
        tokens += made.tokens
        progress.made(made.cell.name, made.cell.samples)
    return len(owed), tokens


def _all_made(
    making: Making, cells: Sequence[CellFile], workers: int, progress: SamplesProgress
) -> Iterator[Made]:
    if workers == 1 or len(cells) < 2:
        for cell in cells:
            yield _make(making, cell, progress)
        return
    # Fresh processes: a fork would copy locks that other threads of this one hold. Ctrl-C ends
    # them as it ends this one, without a word.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, fresh, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)
    ) as pool:
        # The longest first, so that no worker is left alone with one at the end.
        order = sorted(cells, key=lambda cell: cell.length * cell.samples, reverse=True)
        running = [pool.submit(_make, making, cell) for cell in order]
        try:
            for done in as_completed(running):
                yield done.result()
        except BrokenProcessPool as error:
            raise HarnessError(
                "a worker was ended from outside; where memory is short, take fewer --workers"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _make(making: Making, cell: CellFile, progress: SamplesProgress | None = None) -> Made:
    """Writes the file of one cell."""
    materials = _read(making.tokenizer, making.data)
    task = find_task(cell.task)
    tokens = 0

    def samples() -> Iterator[Sample]:
        nonlocal tokens
        for index in range(cell.samples):
            if progress:
                progress.made(cell.name, index)
            sample = task.sample(Coordinates(index, cell.length, making.seed), materials)
            yield sample
            tokens += sample.sizes.context_tokens if sample.sizes else 0

    file = making.file(cell)
    export_samples(samples(), making.form, file, materials.tokenizer, task.generation_tokens)
    return Made(cell, tokens, materials.corpora.fingerprints())


def _try_each(making: Making, cells: Sequence[CellFile]) -> None:
    """One sample of each task's least and greatest length: what cannot be made is told first."""
    materials = _read(making.tokenizer, making.data)
    lengths: dict[str, list[int]] = {}
    for cell in cells:
        lengths.setdefault(cell.task, []).append(cell.length)
    for name, of_task in lengths.items():
        for length in sorted({min(of_task), max(of_task)}):
            find_task(name).sample(Coordinates(0, length, making.seed), materials)


@once(1)
def _read(tokenizer: str, data: Path | None) -> Materials:
    """Read once in each process."""
    return Materials(Tokenizer.load(tokenizer), Corpora(data))


class _Manifest:
    """What lies in the folder, and what it was made with."""

    def __init__(self, making: Making) -> None:
        self._making = making
        tokenizer = _read(making.tokenizer, making.data).tokenizer
        self._settings: dict[str, Json] = {
            "form": making.form,
            "seed": making.seed,
            "generation": GENERATION,
            "tokenizer": tokenizer.fingerprint,
        }
        self._data: dict[str, str] = {}
        self._cells: list[CellFile] = []
        path = making.out / MANIFEST
        if not path.exists():
            return
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._data = dict(stored["data"])
            self._cells = [CellFile(**cell) for cell in stored["cells"]]
            settings = stored["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not readable ({error}): delete it to begin anew") from error
        self._check(settings, self._settings)

    def has(self, cell: CellFile) -> bool:
        """Whether the cell is finished, with as many samples."""
        return cell in self._cells and self._making.file(cell).exists()

    def add(self, made: Made) -> None:
        """Records a finished cell."""
        self._check({name: self._data.get(name, sha) for name, sha in made.data.items()}, made.data)
        self._data |= made.data
        same = (made.cell.task, made.cell.length)
        kept = [cell for cell in self._cells if (cell.task, cell.length) != same]
        self._cells = sorted([*kept, made.cell], key=lambda cell: (cell.task, cell.length))
        path = self._making.out / MANIFEST
        content = {
            "settings": self._settings,
            "data": dict(sorted(self._data.items())),
            "cells": [asdict(cell) for cell in self._cells],
        }
        write_whole(path, json.dumps(content, indent=1) + "\n")

    def _check(self, stored: Mapping[str, Json], wanted: Mapping[str, Json]) -> None:
        for name, value in wanted.items():
            if stored.get(name) != value:
                raise SettingsChanged(
                    f"{self._making.out} holds samples made with another {name} "
                    f"({stored.get(name)!r:.40}, now {value!r:.40}): give the one that they were "
                    "made with, or another --out"
                )
