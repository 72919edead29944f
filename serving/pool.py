"""A pool of vLLM replicas under Ray Serve, for one model, started and stopped from here.

    with Pool(find_model("pocket-base"), log_dir=Path("results/run/logs")) as pool:
        options = ClientOptions(pool.base_url)

The pool lives in a process of its own (serving/server.py), which ends with its owner, also
when the owner is killed. It answers on loopback only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

from core.errors import RequestRejected, ServerDied, UsageError
from serving.app import LOOPBACK
from serving.catalogue import REPOSITORY, ModelEntry
from serving.leftovers import MARK, account_of, clear_away, clear_dead_owners, new_folder
from serving.server import ServerSpec, free_ports, is_free
from serving.weights import WeightsCommand

DEADLINE_S = 900.0
"""Time for a pool to be ready. Reading a 32B model takes minutes, the pocket under one."""
STOP_S = 40.0
GRACE_S = 30.0
SERVE_LOGS = REPOSITORY / "results" / "serve" / "logs"


@dataclass(frozen=True, slots=True)
class Ready:
    """A pool that answers. `base_url` ends in /v1; `kind` is GPU or CPU."""

    base_url: str
    replicas: int
    kind: str


class Pool:
    """A context manager: on entry the pool is ready, on exit nothing of it is left.

    `port` None takes a free one. `ray_address` joins a running Ray cluster, which is left
    running. All output goes to `log_dir`; `report` gets one line a state. `weights_folder` lets
    `load_weights` put new weights into the replicas (training); without it nothing can.
    """

    def __init__(
        self,
        entry: ModelEntry,
        *,
        log_dir: Path,
        port: int | None = None,
        ray_address: str | None = None,
        deadline_s: float = DEADLINE_S,
        report: Callable[[str], None] | None = None,
        weights_folder: Path | None = None,
    ) -> None:
        self.entry = entry
        self.log_file = log_dir.resolve() / "pool.log"
        self._port = port
        self._ray_address = ray_address
        self._deadline_s = deadline_s
        self._report = report or _to_stderr
        self._weights_folder = weights_folder.resolve() if weights_folder else None
        self._states: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._folder: Path | None = None
        self._ready: Ready | None = None

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the pool's process and returns at once; `wait` waits for it.

        Raises:
            UsageError: `port` is taken.
            DataMissing: the model's folder holds no model.
        """
        _ = self.entry.location
        if self._port is not None and not is_free(self._port):
            raise UsageError(f"port {self._port} is in use on this machine; give another --port")
        clear_dead_owners()
        self._folder = new_folder()
        spec = ServerSpec(
            entry=self.entry,
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
                [sys.executable, "-m", "serving.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, MARK: str(self._folder)},
                # Ctrl-C in the terminal is for the owner alone.
                start_new_session=True,
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(spec.model_dump_json() + "\n")
            self._child.stdin.flush()
        self._reader = threading.Thread(
            target=_read_states, args=(self._child.stdout, self._states), daemon=True
        )
        self._reader.start()

    def wait(self) -> Ready:
        """Waits until the pool answers.

        Raises:
            ServerDied: it ended, or is not ready by the deadline; the text holds the end of
                the log that tells why.
            UsageError: the model does not fit this machine.
        """
        started = time.monotonic()
        give_up = started + self._deadline_s + GRACE_S
        while self._ready is None:
            try:
                state = self._states.get(timeout=max(give_up - time.monotonic(), 0.0))
            except queue.Empty:
                raise ServerDied(
                    f"the pool of {self.entry.name} hung for {self._deadline_s + GRACE_S:g} s. "
                    + account_of(self._folder, self.log_file)
                ) from None
            self._take(state, time.monotonic() - started)
        return self._ready

    def check(self) -> None:
        """Raises ServerDied, with the end of its log, if the pool ended since it was ready."""
        for state in self._news():
            self._take(state, 0.0)

    def stop(self) -> None:
        """Stops the pool and all of its processes. Does nothing if it does not run."""
        child, self._child, self._ready = self._child, None, None
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
        assert self._child is not None
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then its last state tells why
            self._child.stdin.write(command.model_dump_json() + "\n")
            self._child.stdin.flush()
        while True:
            match self._states.get():
                case {"state": "weights", "versions": versions}:
                    return list(versions)
                case {"state": "refused", "text": text}:
                    raise RequestRejected(
                        f"the pool of {self.entry.name} did not take the weights: {text}"
                    )
                case state:
                    self._take(state, 0.0)

    # -- what it is --------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """The URL for ClientOptions, ending in /v1."""
        return self._running.base_url

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return self._running.replicas

    @property
    def _running(self) -> Ready:
        if self._ready is None:
            raise RuntimeError("the pool does not run: use `with Pool(...)`")
        return self._ready

    # -- inside ------------------------------------------------------------------------------

    def _news(self) -> Iterator[dict[str, Any] | None]:
        while True:
            try:
                yield self._states.get_nowait()
            except queue.Empty:
                return

    def _take(self, state: dict[str, Any] | None, seconds: float) -> None:
        name = self.entry.name
        match state:
            case None:
                raise ServerDied(
                    f"the pool of {name} ended. {account_of(self._folder, self.log_file)}"
                )
            case {"state": "usage", "text": text}:
                raise UsageError(text)
            case {"state": "failed", "text": text}:
                raise ServerDied(text)
            case {"state": "ray"}:
                self._report(f"pool: Ray is up ({seconds:.0f} s)")
            case {"state": "loading", "replicas": count, "kind": kind}:
                self._report(f"pool: starting {count} {kind} replica(s) of {name}")
            case {"state": "ready", "base_url": url, "replicas": count, "kind": kind}:
                self._ready = Ready(url, count, kind)
                self._report(f"pool: {name} answers at {url} ({seconds:.0f} s)")
            case {"state": "unhealthy", "running": running}:
                self._report(f"pool: {running} replica(s) of {name} run, Serve replaces the others")


def serve_forever(
    entry: ModelEntry,
    *,
    port: int | None = None,
    ray_address: str | None = None,
    log_dir: Path = SERVE_LOGS,
) -> None:
    """`run.py serve MODEL`: serves until Ctrl-C or SIGTERM, then stops cleanly.

    Raises:
        ServerDied: the pool did not start, or ended by itself.
    """
    previous = signal.signal(signal.SIGTERM, _interrupt)
    pool = Pool(entry, log_dir=log_dir, port=port, ray_address=ray_address)
    try:
        with pool:
            print(_how_to_ask(pool), flush=True)
            while True:
                pool.check()
                time.sleep(1.0)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _how_to_ask(pool: Pool) -> str:
    body = json.dumps(
        {
            "model": pool.entry.name,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 32,
        }
    )
    return (
        f"{pool.base_url}\n\n"
        f"  curl {pool.base_url}/chat/completions -H 'Content-Type: application/json' \\\n"
        f"    -d '{body}'\n\n"
        f"Answers on {LOOPBACK} only. Log: {pool.log_file}. Ctrl-C stops it."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _read_states(lines: IO[str], states: queue.Queue[dict[str, Any] | None]) -> None:
    with lines, contextlib.suppress(ValueError, OSError):
        for line in lines:
            states.put(json.loads(line))
    states.put(None)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
