"""The project from Python: sweeps, and their results as pandas frames. Start Python, or the
notebook, in the checkout.

    import longmem

    cells = longmem.Sweep(models=["my-model"], tasks=["niah_single_1"], lengths=[8192, 32768],
        samples=8, endpoint="http://127.0.0.1:8000/v1", tokenizer="path/to/model")
    run = cells.run("results/mine")
    run.frame()

`Sweep("pocket")` is a suite, and its fields change what that asks for, as the flags of `run.py
sweep` do; without an endpoint a pool is started. The run is the one that the command line makes:
given again it goes on where it was, and `run.py report` opens it. It works inside a running event
loop, which notebooks have; there the cell waits, and interrupting it stops the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.plan import Overrides, Plan, make_plan
from benchmarks.provenance import project_version
from benchmarks.servers import ServerOptions, limits_of, server_for
from benchmarks.store import Store
from benchmarks.suite import Suite, load_suite
from benchmarks.sweep import sweep
from core.errors import UsageError
from core.names import checked
from core.types import Json
from tasks.scoring import flat

if TYPE_CHECKING:
    import pandas as pd

    from reports.report import ReportFiles
    from reports.run.data import RunData

__all__ = ["Run", "ServerOptions", "Sweep"]
__version__ = project_version()


@dataclass(frozen=True)
class Sweep:
    """What to run. Names are those of the command line, settings after an @ included.

    `suite`: a suite's name or file; None runs every task at every length by every method on every
    model given here. Of a suite, what is None stays as it is. `samples`: of each cell. `endpoint`:
    an OpenAI-compatible server's /v1 address; None starts a pool. `tokenizer`: a folder with
    tokenizer.json, for a model that the catalogue does not have. `data`: the folder of corpora.
    `catalogue`: a file of models of one's own. `engine`: vLLM's engine arguments that differ.
    `accept`: checks of `run.py doctor` whose findings are taken as they are.
    `server`: how to reach the endpoint, or the pool's cluster.
    """

    suite: str | None = None
    models: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    lengths: Sequence[int] | None = None
    samples: int | None = None
    seed: int | None = None
    endpoint: str | None = None
    tokenizer: str | Path | None = None
    data: str | Path | None = None
    catalogue: str | Path | None = None
    engine: Mapping[str, Json] | None = None
    accept: Sequence[str] = ()
    server: ServerOptions = field(default_factory=ServerOptions)

    def run(self, out: str | Path) -> Run:
        """Runs what the folder `out` still owes, and returns the run.

        Raises:
            UsageError: something that cannot be, before the first request.
            HarnessError: the sweep cannot go on; the same call goes on later.
        """
        plan, run_dir = self.plan(), Path(out)
        options = replace(self.server, endpoint=self.endpoint or self.server.endpoint)
        server, limits = server_for(plan, options, run_dir), limits_of(plan, options)
        sweep(plan, run_dir, server, limits, budget=options.budget)
        return Run(run_dir)

    def plan(self) -> Plan:
        """What would be run: its cells, models and settings. Nothing is asked.

        Raises:
            UsageError: something that cannot be.
        """
        suite = self._cells() if self.suite is None else load_suite(self.suite)
        overrides = Overrides(
            models=_names("models", self.models),
            methods=_names("methods", self.methods),
            tasks=_names("tasks", self.tasks),
            lengths=None if self.lengths is None else tuple(self.lengths),
            samples=self.samples,
            seed=self.seed,
            endpoint=self.endpoint or self.server.endpoint,
            tokenizer=None if self.tokenizer is None else str(self.tokenizer),
            catalogue=None if self.catalogue is None else Path(self.catalogue),
            engine=self.engine or {},
            accept=_names("accept", self.accept) or (),
        )
        return make_plan(suite, overrides, None if self.data is None else Path(self.data))

    def _cells(self) -> Suite:
        """A suite of what is given here."""
        given = {"models": self.models, "tasks": self.tasks, "lengths": self.lengths}
        if missing := [name for name, value in given.items() if not value]:
            raise UsageError(f"Sweep: give {' and '.join(missing)}, or the name of a suite")
        block: dict[str, Any] = {
            "tasks": self.tasks,
            "lengths": self.lengths,
            "samples": 8 if self.samples is None else self.samples,
            "models": self.models,
            "methods": self.methods or ["memagent"],
        }
        values = {"name": "python", "summary": "cells given in Python", "cells": [block]}
        return checked(Suite, values, "Sweep")


@dataclass(frozen=True)
class Run:
    """A run that a sweep made, here or on the command line, finished or not."""

    folder: str | Path

    def frame(self) -> pd.DataFrame:
        """A row a cell: counts of samples, scores with their 95% intervals, mean costs. See
        `reports.tables.accuracy.cell_frame`."""
        from reports.tables.accuracy import cell_frame

        return cell_frame(self.data())

    def samples(self) -> pd.DataFrame:
        """A row a sample that has ended, its scores as columns (`strict.sub_em`)."""
        import pandas as pd

        with Store.read(Path(self.folder)) as store:
            return pd.DataFrame([row | flat(row.pop("scores")) for row in store.sample_rows()])

    def turns(self) -> pd.DataFrame:
        """A row a turn: the reply, the tokens, what it read, the memory after it."""
        import pandas as pd

        with Store.read(Path(self.folder)) as store:
            return pd.DataFrame(store.turn_rows())

    def data(self) -> RunData:
        """All that reports know of the run."""
        from reports.run.load import load_run

        return load_run(Path(self.folder))

    def report(self) -> ReportFiles:
        """Renders figures, tables and the page, as `run.py report` does."""
        from reports.report import write_report

        return write_report([Path(self.folder)])


def _names(what: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise UsageError(f"Sweep: {what} is {given!r}, expected a list of names: [{given!r}]")
    return None if given is None else tuple(given)
