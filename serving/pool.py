"""A pool of vLLM replicas under Ray Serve, for one model or several, started and stopped from here.

    with Pool(find_model("pocket-base"), log_dir=Path("results/run/logs")) as pool:
        options = ClientOptions(pool.base_url)

The pool lives in a process of its own (serving/process/server.py), which ends with its owner, also
when the owner is killed. It answers on loopback only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from core.errors import HarnessError, RequestRejected, ServerDied, UsageError
from serving.catalogue import REPOSITORY, ModelEntry
from serving.leftovers import MARK, account_of, clear_away, clear_dead_owners, new_folder
from serving.ports import free_ports, is_free
from serving.process.server import Command, ServerSpec
from serving.weights import WeightsCommand

DEADLINE_S = 900.0
"""Time for a pool to be ready. Reading a 32B model takes minutes, the pocket under one."""
STOP_S = 40.0
POLL_S = 0.2
GRACE_S = 30.0
SERVE_LOGS = REPOSITORY / "results" / "serve" / "logs"


@dataclass(frozen=True, slots=True)
class Ready:
    """A model that answers. `base_url` ends in /v1; `kind` is GPU or CPU. `cache_tokens`: what the
    key-value caches of all its replicas hold, None where they do not tell."""

    base_url: str
    replicas: int
    kind: str
    cache_tokens: int | None = None


@dataclass(slots=True)
class ModelState:
    """How a model of the pool is. `running`: replicas that run; `error`: why it is lost."""

    wanted: int = 0
    running: int = 0
    ready: Ready | None = None
    error: HarnessError | None = None


class Pool:
    """A context manager: on entry the models are ready, on exit nothing of the pool is left.

    Several models run side by side as far as they fit; the others wait until one of these is
    retired. `port` None takes a free one. `ray_address` joins a running Ray cluster, which is left
    running. All output goes to `log_dir`; `report` gets one line a state. `weights_folder` lets
    `load_weights` put new weights into the replicas (training, one model); without it nothing
    can. Threads may wait for models of their own.
    """

    def __init__(
        self,
        *entries: ModelEntry,
        log_dir: Path,
        port: int | None = None,
        ray_address: str | None = None,
        deadline_s: float = DEADLINE_S,
        report: Callable[[str], None] | None = None,
        weights_folder: Path | None = None,
    ) -> None:
        self.entries = entries
        self.log_file = log_dir.resolve() / "pool.log"
        self._port = port
        self._ray_address = ray_address
        self._deadline_s = deadline_s
        self._report = report or _to_stderr
        self._weights_folder = weights_folder.resolve() if weights_folder else None
        self._models = {entry.name: ModelState() for entry in entries}
        self._ended: HarnessError | None = None
        self._changed = threading.Condition()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._heard = 0.0
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._folder: Path | None = None

    # -- life --------------------------------------------------------------------------------

    def start(self, work: Mapping[str, float] | None = None) -> None:
        """Starts the pool's process and returns at once; `wait` waits for a model. Replicas are
        shared out by `work`, a model's share of it (None: alike).

        Raises:
            UsageError: `port` is taken.
            DataMissing: a model's folder holds no model.
        """
        for entry in self.entries:
            _ = entry.location
        if self._port is not None and not is_free(self._port):
            raise UsageError(f"port {self._port} is in use on this machine; give another --port")
        clear_dead_owners()
        self._folder = new_folder()
        spec = ServerSpec(
            entries=self.entries,
            work=dict(work or {}),
            port=self._port or free_ports(1)[0],
            ray_address=self._ray_address,
            folder=self._folder,
            log_file=self.log_file,
            deadline_s=self._deadline_s,
            weights_folder=self._weights_folder,
        )
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "serving.process.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, MARK: str(self._folder)},
                # Ctrl-C in the terminal is for the owner alone.
                start_new_session=True,
            )
        assert self._child.stdout is not None
        self._tell(spec)
        self._heard = time.monotonic()
        self._reader = threading.Thread(
            target=self._read_states, args=(self._child.stdout, self._heard), daemon=True
        )
        self._reader.start()

    def wait(self, model: str | None = None) -> Ready:
        """Waits until a model answers; without a name, the only one.

        Raises:
            ServerDied: it ended, or is not ready by the deadline; the text holds the end of
                the log that tells why.
            UsageError: the model does not fit this machine.
        """
        with self._changed:
            while (ready := self.poll(model)) is None:
                self._changed.wait(timeout=POLL_S)
            return ready

    def poll(self, model: str | None = None) -> Ready | None:
        """As `wait`, without waiting: None while the model does not answer yet."""
        name = model or self.entry.name
        with self._changed:
            self._raise_lost(name)
            state = self._models[name]
            silent_s = time.monotonic() - self._heard
            # A pool that lives tells of itself; a model may wait for others for days.
            waits = any(other.ready for other in self._models.values())
            if state.ready is None and not waits and silent_s > self._deadline_s + GRACE_S:
                raise ServerDied(
                    f"the pool of {name} hung for {self._deadline_s + GRACE_S:g} s. "
                    + account_of(self._folder, self.log_file)
                )
            return state.ready

    def check(self, model: str | None = None) -> None:
        """Raises what ended the pool, or lost the model, since it was ready; its text holds the
        end of the log. For a client that gets no answer: while this returns, it is worth to
        wait, since Serve replaces a dead replica by itself."""
        with self._changed:
            for name in [model] if model else list(self._models):
                self._raise_lost(name)

    def retire(self, model: str) -> None:
        """Gives up a model's replicas, whose place the next one that waits may take."""
        with self._changed:
            self._models[model].ready = None
            # The pool's process is silent while all is well; from now on it starts the next one.
            self._heard = time.monotonic()
            last = not any(name != model and not s.error for name, s in self._models.items())
        if not last:
            self._tell(Command(retire=model))

    def health(self) -> dict[str, tuple[int, int]]:
        """Of each model that has replicas: how many run, and how many should."""
        with self._changed:
            states = self._models.items()
            return {name: (s.running, s.wanted) for name, s in states if s.wanted and s.ready}

    def stop(self) -> None:
        """Stops the pool and all of its processes. Does nothing if it does not run."""
        child, self._child = self._child, None
        if child is None or self._folder is None:
            return
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
        try:
            child.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        clear_away(self._folder, keep_logs_in=self.log_file.parent)
        if self._reader is not None:
            self._reader.join(timeout=STOP_S)
        for state in self._models.values():
            state.ready = None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- new weights ---------------------------------------------------------------------------

    def load_weights(self, name: str, version: int) -> None:
        """Loads the safetensors file called `name`, of the weights folder, into all replicas.
        On return every one of them answers with these weights and tells `version`.

        Raises:
            RequestRejected: a replica did not take the file.
            ServerDied: the pool ended, or not all replicas have the weights by the deadline.
        """
        versions = self._command(WeightsCommand(name=name, version=version))
        if set(versions) != {version}:
            raise ServerDied(
                f"replicas of {self.entry.name} have the weights {versions}, not {version}. "
                + account_of(self._folder, self.log_file)
            )

    def weights_versions(self) -> list[int]:
        """The version of each replica's weights; 0 is the model as it was started, which is
        also what a replica has that Serve put in the place of a dead one. Raises as
        `load_weights`."""
        return self._command(WeightsCommand())

    def _command(self, command: WeightsCommand) -> list[int]:
        if self._weights_folder is None:
            raise RuntimeError("the pool was started without a weights folder")
        _ = self._running
        self._tell(Command(weights=command))
        match self._answers.get():
            case {"state": "weights", "versions": versions}:
                return list(versions)
            case {"text": text}:
                raise RequestRejected(
                    f"the pool of {self.entry.name} did not take the weights: {text}"
                )
        self.check()
        raise ServerDied(f"the pool of {self.entry.name} ended")

    # -- what it is --------------------------------------------------------------------------

    @property
    def entry(self) -> ModelEntry:
        """The only model, or the first."""
        return self.entries[0]

    @property
    def base_url(self) -> str:
        """The only model's URL for ClientOptions, ending in /v1."""
        return self._running.base_url

    @property
    def replicas(self) -> int:
        """Number of replicas of the only model."""
        return self._running.replicas

    @property
    def _running(self) -> Ready:
        ready = self._models[self.entry.name].ready
        if ready is None:
            raise RuntimeError("the pool does not run: use `with Pool(...)`")
        return ready

    # -- inside ------------------------------------------------------------------------------

    def _tell(self, message: ServerSpec | Command) -> None:
        if self._child is None or self._child.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ValueError):  # its last state tells why
            self._child.stdin.write(message.model_dump_json() + "\n")
            self._child.stdin.flush()

    def _raise_lost(self, name: str) -> None:
        error = self._models[name].error or self._ended
        if error is not None:
            raise error

    def _read_states(self, lines: IO[str], started: float) -> None:
        with lines, contextlib.suppress(ValueError, OSError):
            for line in lines:
                with self._changed:
                    self._take(json.loads(line), time.monotonic() - started)
                    self._heard = time.monotonic()
                    self._changed.notify_all()
        with self._changed:
            if self._ended is None:
                names = ", ".join(self._models)
                account = account_of(self._folder, self.log_file)
                self._ended = ServerDied(f"the pool of {names} ended. {account}")
                if self._child is not None and any(m.ready for m in self._models.values()):
                    # Not by `stop`. On a cluster the replicas live on, and no request would tell.
                    self._report(f"pool: {self._ended}")
            self._changed.notify_all()
        self._answers.put(None)

    def _take(self, state: dict[str, Any], seconds: float) -> None:
        model = self._models.get(state.get("model", ""))
        match state:
            case {"state": "usage", "text": text}:
                self._lose(model, UsageError(text))
            case {"state": "failed", "text": text}:
                self._lose(model, ServerDied(text))
            case {"state": "weights"} | {"state": "refused"}:
                self._answers.put(state)
            case {"state": "ray"}:
                self._report(f"pool: Ray is up ({seconds:.0f} s)")
            case {"state": "note", "text": text}:
                self._report(f"pool: {text}")
            case {"state": "loading", "model": name, "replicas": count, "kind": kind} if model:
                model.wanted = count
                self._report(f"pool: starting {count} {kind} replica(s) of {name}")
            case {"state": "ready", "model": name, "base_url": url, **rest} if model:
                model.ready = Ready(url, rest["replicas"], rest["kind"], rest.get("cache_tokens"))
                model.running = rest["replicas"]
                self._report(f"pool: {name} answers at {url} ({seconds:.0f} s)")
            case {"state": "replicas", "model": name, "running": running} if model:
                self._tell_health(name, model, running)

    def _lose(self, model: ModelState | None, error: HarnessError) -> None:
        if model is None:
            self._ended = error
        else:
            model.error, model.ready, model.running = error, None, 0

    def _tell_health(self, name: str, model: ModelState, running: int) -> None:
        """Says so where a replica of a model that was ready is gone, or is there again."""
        before, model.running = model.running, running
        if model.ready is None or before == running:
            return
        rest = "" if running >= model.wanted else "; Serve replaces the others"
        self._report(f"pool: {running} of {model.wanted} replica(s) of {name} run{rest}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
