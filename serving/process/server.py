"""The process that holds a pool: starts Ray (or joins a cluster), runs one application for each
model, and watches them.

`serving.pool.Pool` starts it as a child, so that neither Ray nor its chatter, its signal
handlers and its environment come into the process that does the work. Line 1 of stdin is a
`ServerSpec`; each line after it is a `Command`; the end of stdin (its owner stopped, or was
killed) ends this process too. Each line of stdout is a JSON state for the owner; all else that
is printed goes to the log.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from core.errors import DataMissing, HarnessError, RequestRejected, ServerDied, UsageError
from serving.app import LOOPBACK, build_application
from serving.catalogue import ModelEntry
from serving.fetch import fetch
from serving.leftovers import account_of, clear_away
from serving.placement import Layout, Node, Share, share_out, tensor_parallel, why_not
from serving.process import cluster
from serving.process.reload import change_weights
from serving.process.watch import Served, Status, Watch, statuses
from serving.weights import WeightsCommand

WATCH_PERIOD_S = 5.0
POLL_PERIOD_S = 0.5
SETTLE_S = 30.0
"""How long a cluster may take to count the resources of a deleted application as free."""


class ServerSpec(BaseModel):
    """What the owner asks for. `work`: of each model, for its share of the replicas. `folder` is
    this pool's own, short, for Ray's session; `weights_folder` None leaves out all that could
    change weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: tuple[ModelEntry, ...]
    work: Mapping[str, float] = {}
    port: int
    ray_address: str | None
    folder: Path
    log_file: Path
    deadline_s: float
    weights_folder: Path | None = None


class Command(BaseModel):
    """What the owner may ask later: new weights, or a model's replicas to be given up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: WeightsCommand | None = None
    retire: str | None = None


def main() -> int:
    """Runs a pool until stdin ends or a signal comes. Exit code 0, or 1 with a last state
    `failed` or `usage` that says why."""
    spec = ServerSpec.model_validate_json(sys.stdin.readline())
    say = _take_over_output(spec.log_file)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle
    signal.signal(signal.SIGTERM, _leave)
    commands: queue.Queue[Command] = queue.Queue()
    threading.Thread(target=_hear_owner, args=(commands,), daemon=True).start()
    threading.Thread(target=_import_ahead, daemon=True).start()
    pool = _Pool(spec, say, commands)
    try:
        pool.start()
        pool.run()
    except SystemExit:  # from _leave
        return 0
    except UsageError as error:
        say(state="usage", text=str(error))
        return 1
    except HarnessError as error:
        say(state="failed", text=str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary: the owner must hear of it
        text = f"{type(error).__name__}: {error}"
        say(state="failed", text=f"the pool failed: {text}\n{pool.account()}")
        return 1
    finally:
        pool.stop()
        clear_away(spec.folder, keep_logs_in=spec.log_file.parent)


class _Pool:
    def __init__(
        self, spec: ServerSpec, say: Callable[..., None], commands: queue.Queue[Command]
    ) -> None:
        self.spec = spec
        self.say = say
        self.commands = commands
        self.own_cluster = spec.ray_address is None
        self.direct = cluster.streams_directly(spec.ray_address)
        self.nodes: list[Node] = []
        self.waiting = [Share(entry, spec.work.get(entry.name, 1.0)) for entry in spec.entries]
        self.served: dict[str, Served] = {}
        self.watch = Watch(say, self.account, spec.deadline_s)

    # -- start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Ray and Serve are up; no model yet.

        Raises:
            ServerDied: Ray does not start or does not let us in.
            UsageError: a model's folder holds none, or the cluster cannot hold replicas.
        """
        for entry in self.spec.entries:
            _ = entry.location  # a missing model is told before Ray takes its seconds
        if self.spec.ray_address is None:
            cpus = max(os.cpu_count() or 1, self._threads())
            session = cluster.start(self.spec.folder, cpus=cpus, direct=self.direct)
        else:
            session = cluster.join(self.spec.ray_address, self._give_up)
        self.say(state="ray", session=session)
        if not self.own_cluster:
            every = cluster.nodes(free=False, own=False)
            if len(every) > 1 and not cluster.has_token():
                self.say(state="note", text=cluster.NO_TOKEN)
            needs_code = cluster.needs_our_code(every, self.spec.weights_folder)
            cluster.examine(self.spec.entries, needs_code=needs_code)
        self._fetch()
        self._start_serve()
        others = [] if self.own_cluster else cluster.clear_orphans()
        give_up = time.monotonic() + (0.0 if self.own_cluster else SETTLE_S)
        while self.waiting:
            self.nodes = cluster.nodes(free=not self.own_cluster, own=self.own_cluster)
            if self._place():
                break
            if time.monotonic() > give_up:
                self._explain(others)
            time.sleep(POLL_PERIOD_S)

    def _fetch(self) -> None:
        """Fetches what is not local, on every node that may hold it. A model that cannot be had
        is lost, and the others go on."""
        for share in [share for share in self.waiting if not share.entry.is_local]:
            try:
                for where, steps in cluster.fetchers(own=self.own_cluster):
                    fetch(share.entry, steps, where, lambda text: self.say(state="note", text=text))
            except DataMissing as error:
                self.waiting.remove(share)
                self.say(state="usage", model=share.entry.name, text=str(error))

    def _threads(self) -> int:
        """CPUs for one replica of each model. Our own cluster has them even where the machine has
        not, so that all models run side by side and the cores change hands."""
        cpu = [entry for entry in self.spec.entries if entry.cpu is not None]
        return sum(
            entry.cpu.threads * tensor_parallel(entry, on_gpu=False) for entry in cpu if entry.cpu
        )

    def _give_up(self, text: str) -> None:
        self.say(state="failed", text=text)
        os._exit(1)

    def _start_serve(self) -> None:
        from ray import serve
        from ray.serve.schema import LoggingConfig

        # On a cluster where Serve runs already, this changes nothing and joins it.
        serve.start(
            proxy_location="HeadOnly" if self.own_cluster else "EveryNode",
            http_options={"host": LOOPBACK, "port": self.spec.port},
            logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
        )

    def _explain(self, others: list[str]) -> NoReturn:
        entry = self.waiting[0].entry
        every = self.nodes if self.own_cluster else cluster.nodes(free=False, own=False)
        if not share_out(self.waiting, every):
            raise UsageError(why_not(entry, every))
        who = f": {', '.join(others)}" if others else ""
        raise UsageError(
            f"{why_not(entry, self.nodes)}. The cluster has more, but others hold it{who}. "
            "Wait for them, or stop theirs (`serve status`, `ray status`)."
        )

    # -- models come and go ------------------------------------------------------------------

    def _place(self) -> bool:
        """Gives replicas to models that wait, as far as there is room. False if none got any."""
        taken = [(served.entry, served.layout.replicas) for served in self.served.values()]
        layouts = share_out(self.waiting, self.nodes, taken)
        for share in [share for share in self.waiting if share.entry.name in layouts]:
            self.waiting.remove(share)
            try:
                self._deploy(share.entry, layouts[share.entry.name])
            except ValueError as error:  # Ray's and vLLM's checks of an engine argument
                text = f"model {share.entry.name}: {error}"
                self.say(state="usage", model=share.entry.name, text=text)
        return bool(layouts)

    def _deploy(self, entry: ModelEntry, layout: Layout) -> None:
        kind = "GPU" if layout.on_gpu else "CPU"
        self.say(state="loading", model=entry.name, replicas=layout.replicas, kind=kind)
        name = cluster.application_name(entry.name)
        alone = self.own_cluster and len(self.spec.entries) == 1
        prefix = "" if alone else f"/{name if not self.own_cluster else entry.name}"
        now = time.monotonic()
        base_url = f"http://{self._run(entry, layout, name, prefix)}{prefix}/v1"
        self.served[entry.name] = Served(
            entry, name, layout, base_url, now, now + self.spec.deadline_s
        )

    def _run(self, entry: ModelEntry, layout: Layout, name: str, prefix: str) -> str:
        """Starts the application, and returns the host and port that it will answer at."""
        from ray import serve
        from ray.serve.api import RunTarget
        from ray.serve.schema import LoggingConfig

        app = build_application(
            entry,
            layout,
            self.spec.folder,
            direct=self.direct,
            own_cluster=self.own_cluster,
            weights_folder=self.spec.weights_folder,
        )
        quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
        target = RunTarget(target=app, name=name, route_prefix=prefix or "/", logging_config=quiet)
        serve.run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
        host, port = cluster.proxy_address()
        return f"{host}:{port}"

    def _retire(self, name: str) -> None:
        """Gives up a model's replicas; the next that waits may take their place."""
        served = self.served.pop(name, None)
        if served is not None:
            _delete(served.app)
            self._place()

    # -- the watch ---------------------------------------------------------------------------

    def run(self) -> NoReturn:
        """Looks after the models and obeys commands, until a signal comes.

        Raises:
            ServerDied: Serve did not answer for the deadline.
        """
        silent_since: float | None = None
        while True:
            starting = any(not served.ready for served in self.served.values())
            try:
                states = statuses()
            except Exception as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > self.spec.deadline_s:
                    raise ServerDied(f"Serve does not answer: {error}\n{self.account()}") from error
            else:
                silent_since = None
                for served in list(self.served.values()):
                    self._look_after(served, states.get(served.app))
            with contextlib.suppress(queue.Empty):
                self._obey(self.commands.get(timeout=POLL_PERIOD_S if starting else WATCH_PERIOD_S))

    def _look_after(self, served: Served, status: Status | None) -> None:
        try:
            self.watch.look(served, status)
        except ServerDied as error:
            self.say(state="failed", model=served.entry.name, text=str(error))
            self._retire(served.entry.name)

    # -- commands ----------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        if command.retire is not None:
            self._retire(command.retire)
        if command.weights is not None:
            served = next(iter(self.served.values()))
            try:
                versions = change_weights(served, command.weights, deadline_s=self.spec.deadline_s)
            except RequestRejected as error:
                self.say(state="refused", text=str(error))
            except ServerDied as error:
                raise ServerDied(f"{error}\n{self.account()}") from error
            else:
                self.say(state="weights", versions=versions)

    def account(self) -> str:
        """What the logs say of a failure."""
        return account_of(self.spec.folder, self.spec.log_file)

    def stop(self) -> None:
        """Removes what this process started: the applications, and Ray if it is our own."""
        if "ray" not in sys.modules:
            return
        import ray

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.own_cluster and ray.is_initialized():
            for served in self.served.values():
                _delete(served.app)
        ray.shutdown()


def _delete(app: str) -> None:
    from ray import serve

    with contextlib.suppress(Exception):
        serve.delete(app)


def _import_ahead() -> None:
    """What takes longest to import of what a pool needs, while Ray starts. Ray is not in it: its
    environment is not set yet."""
    with contextlib.suppress(ImportError):  # told where it is needed
        importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")


def _take_over_output(log_file: Path) -> Callable[..., None]:
    """Keeps the real stdout for states, and sends all other output, of C++ too, to the log."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    states = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with log_file.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def say(**state: Any) -> None:
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}", json.dumps(state), flush=True)
        with contextlib.suppress(BrokenPipeError, ValueError):
            states.write(json.dumps(state) + "\n")
            states.flush()

    return say


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _hear_owner(commands: queue.Queue[Command]) -> None:
    with contextlib.suppress(OSError, ValueError):
        rest = b""
        while some := os.read(0, 4096):
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                commands.put(Command.model_validate_json(line))
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # All is stopped and said. Python's own taking apart crashes now and then under Ray's threads.
    os._exit(main())
