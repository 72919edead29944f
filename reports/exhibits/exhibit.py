"""What an exhibit is: what it shows, where it is from, and how it is drawn from what is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from reports.exhibits.grid import Grid
from reports.run.data import RunData
from reports.run.published import PublishedRow


@dataclass(frozen=True, slots=True)
class Sampled:
    """Which sample a case study is of; None leaves the choice to the exhibit."""

    task: str | None = None
    length: int | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """What exhibits are drawn from. `run` is None without `runs`, which are folders of stores or
    exports; `training` are folders with a metrics.jsonl. `only_ours` leaves the published
    numbers out."""

    published: tuple[PublishedRow, ...]
    run: RunData | None = None
    runs: tuple[Path, ...] = ()
    training: tuple[Path, ...] = ()
    only_ours: bool = False
    sampled: Sampled = Sampled()

    @property
    def printed(self) -> tuple[PublishedRow, ...]:
        """The published numbers that may be shown."""
        return () if self.only_ours else self.published


@dataclass(frozen=True, slots=True)
class Drawn:
    """An exhibit as drawn. `figures` go by the end of their files' names, empty for the only
    one; `texts` are further files by the end of their names."""

    figures: Mapping[str, Figure] = field(default_factory=dict)
    grids: tuple[Grid, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One figure or table of a paper. `printed`: its numbers are published (or follow from a
    formula), so that it can be drawn with no run. `draw` gives None where the material holds
    nothing for it."""

    name: str
    title: str
    shows: str
    source: str
    printed: bool
    draw: Callable[[Material], Drawn | None]
    from_training: bool = False
