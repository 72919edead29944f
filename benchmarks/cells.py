"""From a suite and the flags on top of it to the cells of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from benchmarks.store import Cell
from benchmarks.suite import Suite
from core.errors import DataMissing, UsageError

T = TypeVar("T", str, int)


@dataclass(frozen=True, slots=True)
class Choice:
    """Flags that choose among a suite's cells, or add to them. None leaves all as it is.

    What the suite has anywhere chooses among its blocks; what it has nowhere is put into
    every block. So `--models pocket-base` keeps the blocks of that model with the methods
    that they pair it with, and `--models mine` runs them all with another model.
    """

    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    lengths: tuple[int, ...] | None = None
    samples: int | None = None
    draws: int | None = None


def cells_of(suite: Suite, choice: Choice) -> tuple[Cell, ...]:
    """The chosen cells, block by block and pair by pair, lengths before tasks, models and methods.

    A cell that flags bring into several blocks has the samples and draws of the first.

    Raises:
        UsageError: nothing is left.
    """
    known = suite.products
    models = {name for block in known for name in block.models}
    methods = {name for block in known for name in block.methods}
    tasks = {name for block in known for name in block.tasks}
    lengths = {length for block in known for length in block.lengths}
    counts: dict[tuple[str, int, str, str], tuple[int, int]] = {}
    for block in known:
        for key in _keys(
            _kept(block.lengths, choice.lengths, lengths),
            _kept(block.tasks, choice.tasks, tasks),
            _kept(block.models, choice.models, models),
            _kept(block.methods, choice.methods, methods),
        ):
            counts.setdefault(key, (choice.samples or block.samples, choice.draws or block.draws))
    if not counts:
        pairs = dict.fromkeys(
            f"{', '.join(block.models)} with {', '.join(block.methods)}" for block in known
        )
        raise UsageError(
            f"suite {suite.name}: no cell is left, none of its blocks has all that the flags "
            f"ask for. It runs {'; '.join(pairs)}."
        )
    return tuple(Cell(place, *key, *count) for place, (key, count) in enumerate(counts.items()))


def with_data_at_hand(
    cells: Sequence[Cell], otherwise: Mapping[str, str], make: Callable[[Cell], object]
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """The cells with each task of `otherwise` whose data is not there replaced by the other one,
    and a line for each that was. `make` makes a cell's first sample."""
    missing: dict[tuple[str, int], str] = {}
    for key, cell in {(c.task, c.length): c for c in cells if c.task in otherwise}.items():
        try:
            make(cell)
        except DataMissing as error:
            missing[key] = str(error)
    kept: dict[tuple[str, int, str, str], Cell] = {}
    for cell in cells:
        if (cell.task, cell.length) in missing:
            cell = replace(cell, task=otherwise[cell.task])
        kept.setdefault((cell.task, cell.length, cell.method, cell.model), cell)
    found = tuple(replace(cell, id=place) for place, cell in enumerate(kept.values()))
    return found, tuple(
        f"{task} at {length}: {otherwise[task]} instead ({reason})"
        for (task, length), reason in missing.items()
    )


def _kept(own: Sequence[T], wanted: Sequence[T] | None, known: set[T]) -> list[T]:
    """What a block runs: those of its own that are wanted, then what no block has."""
    if wanted is None:
        return list(own)
    return [x for x in own if x in wanted] + [x for x in wanted if x not in known]


def _keys(
    lengths: list[int], tasks: list[str], models: list[str], methods: list[str]
) -> Iterator[tuple[str, int, str, str]]:
    for length, task, model, method in product(lengths, tasks, models, methods):
        yield task, length, method, model
