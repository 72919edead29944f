"""The state file of a run: how a sweep is, for those who cannot open its store.

SQLite's WAL does not reach other hosts, nor every network file system. This file is small,
written whole, and read with nothing but `cat`: `run.py status RUN` prints it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import UsageError
from core.files import write_whole
from core.names import explained

STATE_NAME = "state.json"
PERIOD_S = 5.0
SILENT_S = 60.0
"""A sweep that has not written for so long does not run."""

Health = Callable[[], Mapping[str, tuple[int, int]]]
"""Of each model that has replicas: how many run, and how many should."""


class RunState(BaseModel):
    """How a sweep is. Rates count this start of the command; `left_s` None: not known yet.
    `usd`: what an endpoint took for the turns of this start.
    `replicas`: by model, those that run and those that should. `ended`: None while it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    written: datetime
    host: str
    process: int
    cells: int
    cells_done: int
    samples: int
    samples_done: int
    errors: int
    turns: int
    turns_per_s: float
    tokens_per_s: float
    left_s: float | None
    usd: float = 0.0
    last_failure: str | None = None
    replicas: Mapping[str, tuple[int, int]] = {}
    ended: str | None = None

    def line(self) -> str:
        """Everything in one line."""
        left = "?" if self.left_s is None else clock(self.left_s)
        return (
            f"cells {self.cells_done}/{self.cells}  samples {self.samples_done}/{self.samples}  "
            f"{self.turns_per_s:.1f} turns/s  {self.tokens_per_s:,.0f} tokens/s  "
            f"errors {self.errors}  left {left}" + (f"  {self.usd:.2f} USD" if self.usd else "")
        )


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class StateFile:
    """A context manager that writes the state of a sweep to its folder, every few seconds. A
    state that cannot be written costs nothing but itself."""

    def __init__(self, run_dir: Path, now: Callable[[str | None], RunState]) -> None:
        self._path = run_dir / STATE_NAME
        self._now = now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def __enter__(self) -> StateFile:
        self._write(None)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        stopped = isinstance(error, KeyboardInterrupt)
        why = "stopped, to be gone on with" if stopped else f"{type(error).__name__}: {error}"
        self._write("done" if error is None else why)

    def _write_on(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._write(None)

    def _write(self, ended: str | None) -> None:
        with contextlib.suppress(OSError):
            write_whole(self._path, self._now(ended).model_dump_json(indent=1) + "\n")


def here() -> tuple[str, int]:
    """The host and the process that write."""
    return socket.gethostname(), os.getpid()


def status(run_dir: Path) -> tuple[list[str], bool]:
    """The state of a run in words, and whether all is well with it.

    Raises:
        UsageError: no sweep has written one there.
    """
    path = run_dir / STATE_NAME
    try:
        state = RunState.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{run_dir}: no {STATE_NAME} there ({error.strerror}). Give the folder of a run, the "
            "--out of a sweep."
        ) from error
    except ValidationError as error:
        raise UsageError(f"{path}: not a state of this version: {explained(error)}") from error
    silent_s = (datetime.now(UTC) - state.written).total_seconds()
    lines = [state.line()]
    lines += [
        f"model {name}: {running} of {wanted} replicas run"
        for name, (running, wanted) in state.replicas.items()
    ]
    if state.last_failure:
        lines.append(f"last failure: {state.last_failure}")
    where = f"process {state.process} on {state.host}"
    if state.ended is not None:
        lines.append(f"ended {clock(silent_s)} ago: {state.ended}")
        return lines, state.ended == "done" and not state.errors
    if silent_s > SILENT_S:
        lines.append(
            f"no word from {where} for {clock(silent_s)}: it was killed, or its clock or its "
            "file system lags. Nothing finished is lost: the sweep's command goes on."
        )
        return lines, False
    lines.append(f"running: {where}, {silent_s:.0f} s ago")
    return lines, all(running >= wanted for running, wanted in state.replicas.values())


# -- where the run's folder is -------------------------------------------------------------------

NETWORK = frozenset({"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs"}) | frozenset(
    {"ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs", "pvfs2"}
    | {f"fuse.{name}" for name in ("sshfs", "glusterfs", "s3fs", "gcsfuse", "juicefs")}
)


def network_warning(run_dir: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """What to know where the run's folder is on a network file system; None elsewhere."""
    kind = _file_system(run_dir.resolve(), mounts)
    if kind not in NETWORK:
        return None
    return (
        f"{run_dir} is on a network file system ({kind}): the run's store works there from one "
        "host at a time, and only from this one while the sweep runs. Watch it elsewhere with "
        "`run.py status`; report it after its end, or take a local --out and copy it then."
    )


def _file_system(path: Path, mounts: Path) -> str | None:
    """The type of the mount that holds `path`: the one with the longest mount point."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    for line in lines:
        _, point, kind, *_ = [*line.split(" "), "", "", ""]
        point = point.replace("\\040", " ")
        if kind and path.is_relative_to(point) and len(point) >= best[0]:
            best = (len(point), kind)
    return best[1]
