"""The process that holds a pool: starts Ray (or joins a cluster), runs the application, watches.

`serving.pool.Pool` starts it as a child, so that neither Ray nor its chatter, its signal
handlers and its environment come into the process that does the work. Line 1 of stdin is a
`ServerSpec`; each line after it is a `WeightsCommand`; the end of stdin (its owner stopped, or
was killed) ends this process too. Each line of stdout is a JSON state for the owner; all else
that is printed goes to the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from core.errors import HarnessError, ServerDied, UsageError
from serving.app import (
    GIB,
    LOOPBACK,
    PORT_NAMES,
    Layout,
    Resources,
    build_application,
    can_stream_directly,
    head_environment,
    plan_layout,
)
from serving.catalogue import ModelEntry
from serving.leftovers import account_of, clear_away
from serving.weights import WeightsCommand, obey

WATCH_PERIOD_S = 5.0
POLL_PERIOD_S = 0.5
OBJECT_STORE_BYTES = 256 << 20
ANSWER_S = 120.0
"""How long a pool that came up may answer with errors, at least: Serve notices a dead engine and
puts another in its place in about a minute."""


class ServerSpec(BaseModel):
    """What the owner asks for. `folder` is this pool's own, short, for Ray's session;
    `weights_folder` None leaves out all that could change weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: ModelEntry
    port: int
    ray_address: str | None
    folder: Path
    log_file: Path
    deadline_s: float
    weights_folder: Path | None = None


def main() -> int:
    """Runs one pool until stdin ends or a signal comes. Exit code 0, or 1 with a last state
    `failed` or `usage` that says why."""
    spec = ServerSpec.model_validate_json(sys.stdin.readline())
    say = _take_over_output(spec.log_file)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle
    signal.signal(signal.SIGTERM, _leave)
    commands: queue.Queue[WeightsCommand] = queue.Queue()
    threading.Thread(target=_hear_owner, args=(commands,), daemon=True).start()
    pool = _Pool(spec, say, commands)
    try:
        pool.start()
        pool.watch()
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
        self,
        spec: ServerSpec,
        say: Callable[..., None],
        commands: queue.Queue[WeightsCommand],
    ) -> None:
        self.spec = spec
        self.say = say
        self.commands = commands
        self.own_cluster = spec.ray_address is None
        self.direct = self.own_cluster and can_stream_directly()
        self.name = f"longmem-{spec.entry.name}-{os.getpid()}"
        self.started = time.monotonic()
        self.deadline = self.started + spec.deadline_s

    def start(self) -> None:
        """Raises ServerDied if the pool is not ready by the deadline."""
        _ = self.spec.entry.location  # a missing model is told before Ray takes its seconds
        resources = self._start_ray()
        layout = self.layout = plan_layout(self.spec.entry, resources)
        kind = "GPU" if layout.on_gpu else "CPU"
        self.say(state="loading", replicas=layout.replicas, kind=kind)
        host, port, prefix = self._start_application(layout)
        self._wait_until_running(layout)
        base_url = f"http://{host}:{port}{prefix}/v1"
        # Longer than the replicas took: one whose engine died once may have been replaced.
        now = time.monotonic()
        self.deadline = min(self.deadline, now + max(ANSWER_S, 2 * (now - self.started)))
        for _ in range(layout.replicas):
            self._ask(base_url)
        self.say(state="ready", base_url=base_url, replicas=layout.replicas, kind=kind)

    def _start_ray(self) -> Resources:
        if self.own_cluster:
            ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
            os.environ.update(head_environment(ports, self.spec.folder, direct=self.direct))
        elif _has_ray_token():
            # Ray clusters ask for the user's token by default, and clients do not offer it.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        import ray

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
        if self.own_cluster:
            options |= {
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_temp_dir": str(self.spec.folder),
                "_node_ip_address": LOOPBACK,
            }
        else:
            options |= {"address": self.spec.ray_address}
        try:
            context = ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if self.own_cluster:
                raise ServerDied(f"Ray did not start: {error}\n{self.account()}") from error
            raise ServerDied(
                f"no Ray cluster at {self.spec.ray_address}: {error}. Is it up (`ray status`), "
                "the same Ray 2.60.0, and is its token in ~/.ray/auth_token or RAY_AUTH_TOKEN? "
                f"{self.account()}"
            ) from error
        self.say(state="ray", session=context.address_info["session_dir"])
        total = ray.cluster_resources()
        available = _free_memory_gib() if self.own_cluster else total.get("memory", 0.0) / GIB
        return Resources(total.get("CPU", 0.0), total.get("GPU", 0.0), available)

    def _start_application(self, layout: Layout) -> tuple[str, int, str]:
        """Returns host, port and path prefix under which the application answers."""
        from ray import serve
        from ray.serve._private.api import _get_global_client
        from ray.serve.api import RunTarget
        from ray.serve.schema import LoggingConfig

        entry = self.spec.entry
        app = build_application(
            entry,
            layout,
            self.spec.folder,
            direct=self.direct,
            own_cluster=self.own_cluster,
            weights_folder=self.spec.weights_folder,
        )
        quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
        # On a cluster where Serve runs already, this changes nothing and joins it.
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": LOOPBACK, "port": self.spec.port},
            logging_config=quiet,
        )
        prefix = "" if self.own_cluster else f"/{self.name}"
        target = RunTarget(
            target=app, name=self.name, route_prefix=prefix or "/", logging_config=quiet
        )
        serve.run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
        http = _get_global_client().http_config
        host = http.host if http.host not in (None, "0.0.0.0", "::") else LOOPBACK
        return host, http.port, prefix

    def _wait_until_running(
        self, layout: Layout, *, hopeless: tuple[str, ...] = ("DEPLOY_FAILED", "UNHEALTHY")
    ) -> None:
        told = -1
        while True:
            status, running, message = self._status()
            if status == "RUNNING":
                return
            if status in hopeless:
                raise ServerDied(
                    f"model {self.spec.entry.name} did not start ({status}): "
                    f"{_last_line(message)}\n{self.account()}"
                )
            if running != told:
                told = running
                self.say(state="replicas", running=running, replicas=layout.replicas)
            self._check_deadline(running)
            time.sleep(POLL_PERIOD_S)

    def _check_deadline(self, running: int) -> None:
        if time.monotonic() > self.deadline:
            raise ServerDied(
                f"model {self.spec.entry.name} was not ready within "
                f"{self.spec.deadline_s:g} s ({running} of {self.layout.replicas} replicas run). "
                f"Give it longer, or see why:\n{self.account()}"
            )

    def _status(self) -> tuple[str, int, str]:
        """Status of the application, number of model replicas running, what Serve says."""
        from ray import serve

        app = serve.status().applications.get(self.name)
        if app is None:
            return "DEPLOYING", 0, ""
        running = sum(
            d.replica_states.get("RUNNING", 0)
            for name, d in app.deployments.items()
            if name.startswith("LLMServer")
        )
        said = [app.message, *(d.message for d in app.deployments.values())]
        return app.status.value, running, "\n".join(filter(None, said))

    def _ask(self, base_url: str) -> None:
        """One real request, tried until the deadline: what is up must also answer.

        Raises:
            ServerDied: it did not.
        """
        body = {"model": self.spec.entry.name, "prompt": [1, 1], "max_tokens": 1}
        request = urllib.request.Request(
            f"{base_url}/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                left_s = max(self.deadline - time.monotonic(), 1.0)
                with opener.open(request, timeout=left_s) as response:
                    response.read()
                return
            except (urllib.error.URLError, OSError) as error:
                detail = ""
                if isinstance(error, urllib.error.HTTPError):
                    detail = error.read().decode(errors="replace")[:500]
                if time.monotonic() > self.deadline:
                    raise ServerDied(
                        f"the pool runs but does not answer: {error} {detail}\n{self.account()}"
                    ) from error
            time.sleep(POLL_PERIOD_S)

    def watch(self) -> NoReturn:
        """Obeys commands until the application stopped running for good.

        Raises:
            ServerDied: it did.
        """
        bad_since: float | None = None
        while True:
            with contextlib.suppress(queue.Empty):
                self._obey(self.commands.get(timeout=WATCH_PERIOD_S))
            status, running, message = self._status()
            if status == "RUNNING":
                bad_since = None
                continue
            # Serve replaces a dead replica by itself; only a lasting failure ends the pool.
            bad_since = bad_since or time.monotonic()
            self.say(state="unhealthy", running=running, text=message[-500:])
            if status == "DEPLOY_FAILED" or time.monotonic() - bad_since > self.spec.deadline_s:
                raise ServerDied(
                    f"model {self.spec.entry.name} stopped running ({status}): "
                    f"{_last_line(message)}\n{self.account()}"
                )

    def _obey(self, command: WeightsCommand) -> None:
        """Answers once *all* replicas have: Serve replaces one that has died, and it is waited
        for."""
        from ray.exceptions import RayActorError, RayTaskError
        from ray.serve.exceptions import DeploymentUnavailableError

        self.deadline = time.monotonic() + self.spec.deadline_s
        versions: list[int] = []
        while len(versions) != self.layout.replicas:
            self._wait_until_running(self.layout, hopeless=("DEPLOY_FAILED",))
            try:
                versions = obey(self._handle, command, timeout_s=self.spec.deadline_s)
            except (RayActorError, DeploymentUnavailableError):
                versions = []
            except (RayTaskError, TimeoutError) as error:
                versions = []
                if command.name is not None:  # a file that it refused once, it refuses again
                    self.say(state="refused", text=_last_line(str(error)))
                    return
            if len(versions) != self.layout.replicas:
                self._check_deadline(len(versions))
                time.sleep(POLL_PERIOD_S)
        self.say(state="weights", versions=versions)

    @cached_property
    def _handle(self) -> Any:
        """Reaches the model's replicas; each handle has a router of its own that stays."""
        from ray import serve

        deployments = serve.status().applications[self.name].deployments
        name = next(name for name in deployments if name.startswith("LLMServer"))
        return serve.get_deployment_handle(name, app_name=self.name)

    def account(self) -> str:
        """What the logs say of a failure."""
        return account_of(self.spec.folder, self.spec.log_file)

    def stop(self) -> None:
        """Removes what this process started: the application, and Ray if it is our own."""
        if "ray" not in sys.modules:
            return
        import ray
        from ray import serve

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(Exception):
            if not self.own_cluster and ray.is_initialized():
                serve.delete(self.name)
        ray.shutdown()


def _has_ray_token() -> bool:
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(given) or (Path.home() / ".ray" / "auth_token").is_file()


def _last_line(message: str) -> str:
    """Of what Serve says, mostly a traceback: the line that names the error."""
    lines = [line for line in message.splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else "Ray Serve does not say why"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, below the range that systems hand out by
    themselves, so that nobody takes one before we do. The last starts a range."""
    ports: list[int] = []
    start = 20_000 + os.getpid() % 9_000
    for port in range(start, start + 3_000):
        if is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ServerDied(f"no {count} free ports between {start} and {start + 3_000}")


def is_free(port: int) -> bool:
    """Whether `port` of loopback can be bound."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _free_memory_gib() -> float:
    import psutil

    return float(psutil.virtual_memory().available) / GIB


def _take_over_output(log_file: Path) -> Callable[..., None]:
    """Keeps the real stdout for states, and sends all other output, of C++ too, to the log."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    states = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with log_file.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def say(**state: Any) -> None:
        print(json.dumps(state), flush=True)
        with contextlib.suppress(BrokenPipeError, ValueError):
            states.write(json.dumps(state) + "\n")
            states.flush()

    return say


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _hear_owner(commands: queue.Queue[WeightsCommand]) -> None:
    with contextlib.suppress(OSError, ValueError):
        rest = b""
        while some := os.read(0, 4096):
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                commands.put(WeightsCommand.model_validate_json(line))
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # All is stopped and said. Python's own taking apart crashes now and then under Ray's threads.
    os._exit(main())
