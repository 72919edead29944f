"""Which replicas fit where: counted node by node, because a replica never spans nodes.

Pure arithmetic over what Ray reports; serving/process/server.py asks Ray, serving/app.py writes the
bundles of each replica so that Ray keeps them together (STRICT_PACK).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import UsageError
from serving.catalogue import ModelEntry


@dataclass(frozen=True, slots=True)
class Node:
    """What a node of the cluster has to give."""

    name: str
    cpus: float
    gpus: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Layout:
    """How many replicas, and on what."""

    replicas: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Share:
    """A model that wants replicas, and its work in any unit: models with more get more."""

    entry: ModelEntry
    work: float = 1.0


FIXED = frozenset(
    {
        "model",
        "served_model_name",
        "trust_remote_code",
        "worker_cls",
        "worker_extension_cls",
        "distributed_executor_backend",
    }
)
"""Engine arguments that are not a user's: they decide what code runs, and whose answers count."""


LOADING_WORK_GPU = 5e6
"""Prompt tokens that a GPU reads while a model is loaded and compiled: about three minutes of a
model of 7B. Assumed, not measured; only which models wait hangs on it."""
LOADING_WORK_CPU = 1e6
"""The same of a core and a pocket model, which takes half a minute to load."""


def with_engine(entry: ModelEntry, changes: Mapping[str, Any]) -> ModelEntry:
    """The entry with other engine arguments of vLLM, on GPUs and on CPUs.

    Raises:
        UsageError: one that may not be changed, or a number of workers that is none.
    """
    if fixed := sorted(FIXED & changes.keys()):
        raise UsageError(f"--engine {fixed[0]}: this project sets it itself")
    engine = dict(changes)
    workers = engine.pop("tensor_parallel_size", entry.tensor_parallel)
    if not isinstance(workers, int) or workers < 1:
        raise UsageError(f"tensor_parallel_size: got {workers!r}, expected a whole number above 0")
    cpu = entry.cpu
    if cpu is not None:
        cpu = cpu.model_copy(update={"engine": {**cpu.engine, **changes}})
        if tensor_parallel(entry.model_copy(update={"cpu": cpu}), on_gpu=False) > 1:
            cpu = cpu.model_copy(update={"engine_process": "two"})
    return entry.model_copy(
        update={"tensor_parallel": workers, "engine": {**entry.engine, **engine}, "cpu": cpu}
    )


def has_gpus(nodes: Sequence[Node]) -> bool:
    """Whether replicas go on GPUs: as soon as one node has one."""
    return any(node.gpus >= 1 for node in nodes)


def tensor_parallel(entry: ModelEntry, *, on_gpu: bool) -> int:
    """Workers of one replica. On CPUs it is one, unless the entry's CPU engine says otherwise."""
    if on_gpu:
        return entry.tensor_parallel
    return int(entry.cpu.engine.get("tensor_parallel_size", 1)) if entry.cpu else 1


def bundles(entry: ModelEntry, *, on_gpu: bool) -> list[dict[str, float]]:
    """Ray's resource bundles of one replica, one for each of its workers."""
    worker = {"GPU": 1.0} if on_gpu else {"CPU": float(entry.cpu.threads if entry.cpu else 1)}
    return [dict(worker) for _ in range(tensor_parallel(entry, on_gpu=on_gpu))]


def plan_layout(entry: ModelEntry, nodes: Sequence[Node]) -> Layout:
    """The layout of one model that has the cluster for itself.

    Raises:
        UsageError: not one replica fits.
    """
    layout = share_out([Share(entry)], nodes).get(entry.name)
    if layout is None:
        raise UsageError(why_not(entry, nodes))
    return layout


def share_out(
    wanted: Sequence[Share],
    nodes: Sequence[Node],
    taken: Sequence[tuple[ModelEntry, int]] = (),
) -> dict[str, Layout]:
    """Gives replicas to models until nothing more fits. Each gets one first, in the order given;
    then the one that has the most work for each of its replicas gets the next. A model that gets
    none is left out. `taken`: models that have replicas already, and how many.

    Replicas are few and stay a model's to its end, so models side by side may end far apart, and
    leave GPUs or cores idle. Where one after another is faster by more than the loading of the
    others, the first gets all of an empty cluster."""
    layouts = _side_by_side(wanted, nodes, taken)
    if taken or len(layouts) < 2:
        return layouts
    work = {share.entry.name: share.work for share in wanted if share.entry.name in layouts}
    whole = {
        share.entry.name: _side_by_side([share], nodes)[share.entry.name]
        for share in wanted
        if share.entry.name in layouts
    }
    together = max(work[name] / layout.replicas for name, layout in layouts.items())
    apart = sum(work[name] / layout.replicas for name, layout in whole.items())
    loading = LOADING_WORK_GPU if has_gpus(nodes) else LOADING_WORK_CPU
    if together - apart <= loading * (len(layouts) - 1):
        return layouts
    first = next(iter(layouts))
    return {first: whole[first]}


def _side_by_side(
    wanted: Sequence[Share],
    nodes: Sequence[Node],
    taken: Sequence[tuple[ModelEntry, int]] = (),
) -> dict[str, Layout]:
    free, on_gpu = list(nodes), has_gpus(nodes)
    for entry, count in taken:
        for _ in range(count):
            _take(entry, free, on_gpu)
    counts: dict[str, int] = {}
    hungry = {share.entry.name: share for share in wanted}
    while hungry:
        new = [name for name in hungry if name not in counts]
        name = new[0] if new else max(hungry, key=lambda n: hungry[n].work / counts[n])
        entry = hungry[name].entry
        if _is_full(entry, counts.get(name, 0), on_gpu) or not _take(entry, free, on_gpu):
            del hungry[name]
        else:
            counts[name] = counts.get(name, 0) + 1
    return {name: Layout(count, on_gpu) for name, count in counts.items()}


def why_not(entry: ModelEntry, nodes: Sequence[Node]) -> str:
    """What to tell where not one replica of a model fits."""
    if has_gpus(nodes):
        counts = ", ".join(f"{node.gpus:g}" for node in nodes if node.gpus)
        return (
            f"model {entry.name} takes {entry.tensor_parallel} GPUs of one node a replica, "
            f"the nodes have {counts}. Give --tensor-parallel, or a cluster with larger nodes."
        )
    if entry.cpu is None:
        return (
            f"model {entry.name} takes {entry.tensor_parallel} GPUs a replica, Ray reports none. "
            "Use --ray-address of a cluster that has them, --endpoint URL of a server that "
            "serves it, or the model `pocket`, which runs on CPUs."
        )
    have = "; ".join(f"{node.cpus:g} CPUs and {node.memory_gib:.1f} GiB" for node in nodes)
    return (
        f"model {entry.name} takes {_cpus(entry):g} CPUs and {entry.cpu.memory_gib:g} GiB "
        f"a replica, the nodes have: {have}"
    )


def _is_full(entry: ModelEntry, count: int, on_gpu: bool) -> bool:
    if on_gpu:
        return False
    return entry.cpu is None or count >= entry.cpu.max_replicas


def _take(entry: ModelEntry, free: list[Node], on_gpu: bool) -> bool:
    """Takes one replica's part from the fullest node that has room for it; False if none has."""
    fitting = [place for place, node in enumerate(free) if _fits(entry, node, on_gpu)]
    if not fitting:
        return False
    place = min(fitting, key=lambda i: (free[i].gpus, free[i].cpus, free[i].memory_gib))
    node = free[place]
    if on_gpu:
        # One CPU for the actor that holds the engine.
        free[place] = replace(node, gpus=node.gpus - entry.tensor_parallel, cpus=node.cpus - 1)
    elif entry.cpu is not None:
        free[place] = replace(
            node,
            cpus=node.cpus - _cpus(entry),
            memory_gib=node.memory_gib - entry.cpu.memory_gib,
        )
    return True


def _fits(entry: ModelEntry, node: Node, on_gpu: bool) -> bool:
    if on_gpu:
        return node.gpus >= entry.tensor_parallel and node.cpus >= 1
    return (
        entry.cpu is not None
        and node.cpus >= _cpus(entry)
        and node.memory_gib >= entry.cpu.memory_gib
    )


def _cpus(entry: ModelEntry) -> float:
    return sum(bundle["CPU"] for bundle in bundles(entry, on_gpu=False))
