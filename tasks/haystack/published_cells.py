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
from dataclasses import dataclass

SHORT = 4096
"""Below so many tokens some generators take other numbers."""


@dataclass(frozen=True, slots=True)
class Steps:
    """`size`: units that come and go together. `end`: units that there are, which are taken to
    the last."""

    size: int = 1
    end: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """What a cell sets for its samples; PublishedCell() sets nothing.

    `units`: those of the first sample. `order_seed`: of what is shuffled alike.
    """

    steps: Steps = Steps()
    units: int = sys.maxsize
    order_seed: int | None = None

    def within(self, most: int) -> int:
        """Units of a sample that holds `most`: a step at least, whether it holds it or not."""
        most, step = min(most, self.units, self.steps.end), self.steps.size
        return most if most == self.steps.end else max(most - most % step, step)

    def order_rng(self, rng: random.Random) -> random.Random:
        """What shuffles: the sample's own `rng`, or one that is the same for all samples."""
        return rng if self.order_seed is None else random.Random(self.order_seed)
