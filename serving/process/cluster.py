"""The Ray cluster of a pool: our own, of this machine alone, or one that runs already.

Runs in the pool's process (server.py). On one node everything stays on loopback. On a
cluster of several, requests go to the Serve proxy of the node that we run on, through loopback,
and from there to the replicas through Ray's own ports, which Ray's token guards
(RAY_AUTH_MODE=token): no HTTP port is opened to the network.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ServerDied, UsageError
from serving.app import GIB, LOOPBACK, PORT_NAMES, can_stream_directly, head_environment
from serving.catalogue import ModelEntry
from serving.fetch import Step, fetch_steps
from serving.placement import Node, has_gpus
from serving.ports import free_ports

OBJECT_STORE_BYTES = 256 << 20
CONNECT_S = 10.0
JOIN_S = 45.0
"""Time to join a cluster whose port answers. Ray itself would try for minutes."""
EXAMINE_S = 60.0
NO_TOKEN = (
    "warning: this cluster of several nodes asks for no token: whoever reaches its ports can run "
    "code on it. Start it with RAY_AUTH_MODE=token, or keep its network to itself. HTTP stays on "
    "each node's loopback either way."
)


def start(folder: Path, *, cpus: int | None, direct: bool) -> str:
    """Starts a cluster of this machine alone, and returns its session's folder.

    Raises:
        ServerDied: Ray does not start.
    """
    ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
    os.environ.update(head_environment(ports, folder, direct=direct))
    return _init(
        "Ray did not start",
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        num_cpus=cpus,
        _temp_dir=str(folder),
        _node_ip_address=LOOPBACK,
    )


def join(address: str, give_up: Callable[[str], None]) -> str:
    """Joins the cluster at `address` (HOST:PORT of its head, or `auto`), and returns its
    session's folder. `give_up` is called, from another thread, where Ray does not come back.

    Raises:
        UsageError: the address is of a kind that cannot be joined, or nobody listens there.
        ServerDied: what listens there is no cluster that lets us in.
    """
    _check_address(address)
    if has_token():
        # Ray clusters ask for the user's token by default, and clients do not offer it.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if _on_loopback_alone(address):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    hint = (
        "Is it up (`ray status`), the same Ray 2.60.0, and is its token in ~/.ray/auth_token "
        "or RAY_AUTH_TOKEN?"
    )
    timer = threading.Timer(
        JOIN_S, give_up, (f"no Ray cluster at {address} let us in within {JOIN_S:g} s. {hint}",)
    )
    timer.daemon = True
    timer.start()
    try:
        return _init(f"no Ray cluster at {address} lets us in. {hint}", address=address)
    finally:
        timer.cancel()


def _init(failure: str, **options: Any) -> str:
    import ray

    try:
        context = ray.init(log_to_driver=False, logging_level="WARNING", **options)
    except Exception as error:
        raise ServerDied(f"{failure} ({type(error).__name__}: {error})") from error
    return str(context.address_info["session_dir"])


def _check_address(address: str) -> None:
    if address.startswith("ray://"):
        raise UsageError(
            f"--ray-address {address}: Ray Client connections (ray://) carry no HTTP and no "
            "replicas' health. Run this command on a node of the cluster, with --ray-address "
            "auto, or with HOST:PORT of its head (port 6379 unless it was given another)."
        )
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise UsageError(f"--ray-address {address!r}: expected HOST:PORT of the head, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise UsageError(
            f"--ray-address {address}: nobody listens there ({error}). `ray status` on the head "
            "tells whether the cluster is up, its `ray start` printed the address."
        ) from error


def _on_loopback_alone(address: str) -> bool:
    """Whether a cluster's head listens on loopback and not at this machine's address, which Ray
    puts in the place of 127.0.0.1 unless it is told that clusters are of one machine."""
    host, _, port = address.rpartition(":")
    if host not in ("localhost", LOOPBACK):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        try:
            outward.connect(("192.0.2.1", 9))  # sends nothing: asks for the route
            own = outward.getsockname()[0]
            socket.create_connection((own, int(port)), timeout=CONNECT_S).close()
        except OSError:
            return True
    return False


def has_token() -> bool:
    """Whether this user has a token for Ray clusters."""
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(given) or (Path.home() / ".ray" / "auth_token").is_file()


# -- what is there -----------------------------------------------------------------------------


def nodes(*, free: bool, own: bool) -> list[Node]:
    """The nodes that are alive, by address: all that they have, or what is `free` of it."""
    import psutil
    import ray
    from ray._private.state import available_resources_per_node

    available = available_resources_per_node() if free else {}
    found = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        have = available.get(node["NodeID"], {}) if free else node["Resources"]
        memory = float(psutil.virtual_memory().available) if own else have.get("memory", 0.0)
        found.append(
            Node(
                node["NodeManagerAddress"],
                have.get("CPU", 0.0),
                have.get("GPU", 0.0),
                memory / GIB,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node said of itself. `folders`: those asked for that are there."""

    address: str
    has_code: bool
    folders: tuple[str, ...]


def examine(entries: Sequence[ModelEntry], *, needs_code: bool) -> None:
    """Asks each node of a joined cluster for what replicas will need there.

    Raises:
        UsageError: nodes that lack it, each with what it lacks.
    """
    folders = tuple(entry.location for entry in entries if entry.is_local)
    lacking = []
    for report in _reports(folders):
        if needs_code and not report.has_code:
            lacking.append(f"{report.address} cannot import the package `serving`")
        lacking += [
            f"{report.address} has no folder {folder}"
            for folder in folders
            if folder not in report.folders
        ]
    if lacking:
        raise UsageError(
            "not all nodes of the cluster can hold replicas: "
            + "; ".join(lacking)
            + ". Clone the repository to the same path on every node (or put it on storage that "
            "all of them see), and start Ray there with the repository in PYTHONPATH."
        )


def _reports(folders: tuple[str, ...]) -> Iterator[NodeReport]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A function inside a function: it travels as its code, a node need not have this module.
    def look(paths: tuple[str, ...]) -> tuple[bool, list[str]]:
        import importlib.util
        import os

        try:
            code = importlib.util.find_spec("serving.app") is not None
        except ModuleNotFoundError:
            code = False
        return code, [path for path in paths if os.path.isdir(path)]  # noqa: PTH112

    task = ray.remote(num_cpus=0, max_retries=0)(look)
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(folders)
        for node in alive
    ]
    for node, answer in zip(alive, asked, strict=True):
        address = node["NodeManagerAddress"]
        try:
            has_code, found = ray.get(answer, timeout=EXAMINE_S)
        except Exception as error:
            raise UsageError(
                f"node {address} of the cluster runs no task: {type(error).__name__}: {error}. "
                "Does it have the same Python and Ray 2.60.0?"
            ) from error
        yield NodeReport(address, has_code, tuple(found))


def fetchers(*, own: bool) -> Iterator[tuple[str, Callable[..., Iterator[Step]]]]:
    """For each place that may hold replicas: its name, and what fetches weights there."""
    if own:
        yield "here", fetch_steps()
        return
    import ray

    on_gpus = has_gpus(nodes(free=False, own=False))
    for node in ray.nodes():
        if node["Alive"] and (not on_gpus or node["Resources"].get("GPU")):
            yield f"on node {node['NodeManagerAddress']}", _steps_on(node["NodeID"])


def _steps_on(node_id: str) -> Callable[..., Iterator[Step]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming")(fetch_steps())
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)

    def steps(*arguments: Any) -> Iterator[Step]:
        for step in task.options(scheduling_strategy=there).remote(*arguments):
            yield ray.get(step)

    return steps


def needs_our_code(nodes: Sequence[Node], weights_folder: Path | None) -> bool:
    """Whether replicas import something of this project: on CPUs vLLM's worker, and in training
    what takes new weights (serving/app.py)."""
    return not has_gpus(nodes) or weights_folder is not None


def streams_directly(address: str | None) -> bool:
    """Whether HAProxy carries the bodies: on a cluster of our own, where it is installed. A
    cluster that runs already has the proxies that Serve gives it."""
    return address is None and can_stream_directly()


# -- applications that somebody left -------------------------------------------------------------

_OURS = "longmem"


def application_name(model: str) -> str:
    """Name of a model's application. It tells whose it is: of which process of which host."""
    return f"{_OURS}-{model}-{socket.gethostname()}-{os.getpid()}"


def clear_orphans() -> list[str]:
    """Deletes the applications of pools of this host whose process is gone: they would hold
    their replicas for ever. Returns the names of those that live, here or on other hosts."""
    import psutil
    from ray import serve

    living = []
    for name in serve.status().applications:
        start, _, pid = name.rpartition("-")
        if not (start.startswith(f"{_OURS}-") and pid.isdigit()):
            continue
        if start.endswith(f"-{socket.gethostname()}") and not psutil.pid_exists(int(pid)):
            with contextlib.suppress(Exception):
                serve.delete(name)
        else:
            living.append(name)
    return living


def proxy_address() -> tuple[str, int]:
    """Host and port of the Serve proxy on this node.

    Raises:
        UsageError: Serve has none here.
    """
    import ray
    from ray import serve
    from ray.serve._private.api import _get_global_client

    http = _get_global_client().http_config
    here = ray.get_runtime_context().get_node_id()
    proxies = serve.status().proxies
    if proxies and here not in proxies:
        raise UsageError(
            "Serve has no HTTP proxy on this node of the cluster; it puts them on the head and "
            "on nodes that hold replicas. Run this command on the head."
        )
    return (http.host if http.host not in (None, "0.0.0.0", "::") else LOOPBACK), http.port
