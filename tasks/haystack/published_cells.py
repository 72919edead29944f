"""What the samples of a cell have in common in the published generators: `published=true`.

One number of units: a first sample is tried with more and more of them, a step at a time, and
the last number that fits is taken for the whole cell. A sample that is too long with it loses
steps until it fits. So samples fall short of the length by up to a step, and sometimes more.

One order: needles, words and worked examples are shuffled by a fixed seed.

Source: RULER's generators of 2024, as MemAgent's repository has them (taskutils/memory_data/
synthetic); PROTOCOL 2.2. RULER's of 2025 add single units, and take away steps.

Example, steps of 25 lines: the first sample holds 332, so the cell has 325. A sample that
holds 330 gets 325 of them, one that holds 320 gets 300.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.task import Coordinates, Materials, Task, cell_seed

SHORT = 4096
"""Below so many tokens some generators take other numbers."""

Meta = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell sets for its samples; Cell() sets nothing.

    `step`: units that come and go together. `units`: those of the first sample. `end`: units
    that there are, which are taken to the last. `order_seed`: of what is shuffled alike.
    """

    step: int = 1
    units: int = sys.maxsize
    end: int = sys.maxsize
    order_seed: int | None = None

    def within(self, most: int) -> int:
        """Units of a sample that holds `most`: a step at least, whether it holds it or not."""
        most = min(most, self.units, self.end)
        return most if most == self.end else max(most - most % self.step, self.step)

    def order_rng(self, rng: random.Random) -> random.Random:
        """What shuffles: the sample's own `rng`, or one that is the same for all samples."""
        return rng if self.order_seed is None else random.Random(self.order_seed)


def published_cell(
    make: Callable[..., Sample],
    task: Task,
    index: int,
    length: int,
    seed: int,
    tokenizer: Tokenizer,
    corpora: Corpora,
    *,
    step: int = 1,
    end: int = sys.maxsize,
    units: Callable[[Meta], int] = lambda meta: int(meta["units"]),
) -> Cell:
    """The cell of sample `index`. The first sample, 0, is made for it and remembered.

    `make`: the `sample` of the task's family; the task's own may number samples otherwise, as that
    of `TrainingQuestions` does. `units`: finds their number in a sample's meta.
    """
    order_seed = cell_seed(task, Coordinates(index, length, seed))
    if index == 0:
        return Cell(step, end=end, order_seed=order_seed)
    first = _first_meta(make, task, length, seed, tokenizer, corpora)
    return Cell(step, units(first), end, order_seed)


@lru_cache(maxsize=64)
def _first_meta(
    make: Callable[..., Sample],
    task: Task,
    length: int,
    seed: int,
    tokenizer: Tokenizer,
    corpora: Corpora,
) -> Meta:
    return make(task, Coordinates(0, length, seed), Materials(tokenizer, corpora)).meta
