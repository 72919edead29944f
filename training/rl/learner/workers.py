"""The RL trainer on several workers: Ray Train starts them, and starts them again if one fails.

    train_sharded(recipe, out, Workers(8))     # a GPU each where there are GPUs, else a CPU

does what `training.rl.run.train_rl` does, by sharded.py beside it. Ray runs on this machine's
loopback, or on the cluster at `Workers.ray_address`, whose nodes must all see `out`, the
checkpoint and the corpora at the same paths. After a failure all workers go on from the last
saved step.

On this machine's own Ray the workers meet in a file, and all that listens is on loopback. On a
cluster Ray Train makes the process group: PyTorch's rendezvous (TCPStore) then listens on a port
of rank 0, on all addresses, as it knows no other way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from core.errors import HarnessError, UsageError
from serving.app import LOOPBACK, PORT_NAMES, head_environment
from serving.leftovers import MARK, clear_away, new_folder
from serving.ports import free_ports
from serving.process.cluster import OBJECT_STORE_BYTES
from tasks.corpora.read import Corpora
from training.rl.agent import check_names, run_record, with_whole_paths
from training.rl.engines.shared_engine import COLLECTIVE_TIMEOUT_S
from training.rl.loop import METRICS_FILE
from training.rl.recipe import RlRecipe, recipe_json
from training.rl.run import check_machine, checkpoint_folder, finish
from training.state import OnStep, claim

RAY_TRAIN_FOLDER = "ray_train"
"""Of a run's folder, while it lasts: what Ray Train notes there about its workers."""
MOST_FAILURES = 3
"""How often the workers are started again."""
FOLLOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Workers:
    """How many, and the Ray cluster that they run on; None: this machine's own."""

    count: int
    ray_address: str | None = None


def train_sharded(
    recipe: RlRecipe,
    out: Path,
    workers: Workers,
    *,
    data: Path | None = None,
    device: str | None = None,
    resume: bool = True,
    on_step: OnStep | None = None,
) -> Path:
    """`training.rl.run.train_rl` on several processes; the same arguments mean the same.

    Raises:
        SettingsChanged, UsageError: as train_rl does.
        HarnessError: the workers failed once more than `MOST_FAILURES` times.
    """
    if workers.count < 1:
        raise UsageError(f"workers: got {workers.count}, expected at least 1")
    out = out.resolve()
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_names(recipe)
    if workers.count % recipe.tensor_parallel and recipe.engine == "vllm":
        raise UsageError(
            f"workers: got {workers.count}, expected a multiple of tensor_parallel "
            f"({recipe.tensor_parallel}): so many ranks share an engine"
        )
    check_machine(recipe, kind, workers.count)
    folder = checkpoint_folder(recipe.model).resolve()
    claim(out, run_record(recipe), resume)
    job = {
        "recipe": recipe_json(with_whole_paths(recipe)),
        "folder": str(folder),
        "out": str(out),
        "data": None if data is None else str(data.resolve()),
    }
    backend = "nccl" if kind == "cuda" else "gloo"
    with _ray(workers) as meeting, _followed(out / METRICS_FILE, on_step):
        _fit(job, out, workers.count, backend, meeting)
    shutil.rmtree(out / RAY_TRAIN_FOLDER, ignore_errors=True)
    finish(recipe, out)
    return out


def _fit(
    job: dict[str, Any],
    out: Path,
    workers: int,
    backend: str,
    meeting: Path | None,
) -> None:
    """`meeting`: a folder of this machine where the workers meet, None: Ray Train sees to it."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    work, torch_config = _work, TorchConfig(backend=backend, timeout_s=COLLECTIVE_TIMEOUT_S)
    if meeting is not None:
        work, torch_config = _meet_and_work, _no_group()
    trainer = TorchTrainer(
        work,
        train_loop_config=job | {"meeting": str(meeting), "backend": backend},
        torch_config=torch_config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=backend == "nccl"),
        run_config=RunConfig(
            name=RAY_TRAIN_FOLDER,
            storage_path=str(out),
            failure_config=FailureConfig(max_failures=MOST_FAILURES),
        ),
    )
    try:
        refused = trainer.fit().return_value
    except TrainingFailedError as error:
        raise HarnessError(f"training on {workers} workers failed: {error}") from error
    if refused is not None:
        raise UsageError(refused)


def _no_group() -> Any:
    """A TorchConfig with which Ray Train makes no process group."""
    from ray.train.backend import Backend
    from ray.train.torch import TorchConfig

    class NoGroup(Backend):
        share_cuda_visible_devices = True

    class WithoutGroup(TorchConfig):
        backend_cls = NoGroup

    return WithoutGroup()


def _meet_and_work(job: dict[str, Any]) -> str | None:
    """`_work` in a process group that is made here, through a file that is new each time the
    workers are started."""
    from ray.train import get_context
    from ray.train.collective import broadcast_from_rank_zero

    file = Path(job["meeting"], broadcast_from_rank_zero(uuid.uuid4().hex))
    here = get_context()
    dist.init_process_group(
        job["backend"],
        init_method=file.as_uri(),
        rank=here.get_world_rank(),
        world_size=here.get_world_size(),
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    try:
        return _work(job)
    finally:
        dist.destroy_process_group()


def _work(job: dict[str, Any]) -> str | None:
    """What each worker runs, in a process group. Returns why the recipe cannot be run, if so: all
    workers find the same, and to start them again would not help."""
    from ray.train.torch import get_device

    from training.rl.learner.sharded import train_rank

    data = job["data"]
    try:
        train_rank(
            RlRecipe.model_validate_json(job["recipe"]),
            Path(job["folder"]),
            Path(job["out"]),
            get_device(),
            Corpora(None if data is None else Path(data)),
        )
    except UsageError as error:
        return str(error)
    return None


@contextlib.contextmanager
def _ray(workers: Workers) -> Iterator[Path | None]:
    """Ray on loopback, of this process alone and without a dashboard, and its folder; or the
    cluster and None."""
    folder = None
    if workers.ray_address is None:
        folder = new_folder()
        ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
        os.environ |= head_environment(ports, folder, direct=False) | {
            MARK: str(folder),
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if folder is None:
        options |= {"address": workers.ray_address}
    else:
        options |= {
            "include_dashboard": False,
            "num_cpus": max(workers.count, os.cpu_count() or 1),  # few cores still hold all workers
            "object_store_memory": OBJECT_STORE_BYTES,
            "_temp_dir": str(folder),
            "_node_ip_address": LOOPBACK,
        }
    try:
        ray.init(**options)
        yield folder
    finally:
        ray.shutdown()
        if folder is not None:
            clear_away(folder)


@contextlib.contextmanager
def _followed(metrics: Path, on_step: OnStep | None) -> Iterator[None]:
    """Tells `on_step` of the lines that the workers add to `metrics` meanwhile."""
    if on_step is None:
        yield
        return
    done = threading.Event()
    follower = threading.Thread(target=_follow, args=(metrics, on_step, done))
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()


def _follow(metrics: Path, on_step: OnStep, done: threading.Event) -> None:
    told = _last_step(metrics)
    last = False
    while not last:
        last = done.wait(FOLLOW_S)
        for line in _lines(metrics):
            step = line.pop("step")
            if step > told:  # made again after a failure: told already
                told = step
                on_step(step, {k: float("nan") if v is None else v for k, v in line.items()})


def _last_step(metrics: Path) -> int:
    return max((line["step"] for line in _lines(metrics)), default=-1)


def _lines(metrics: Path) -> list[dict[str, Any]]:
    """The whole lines of the file; the last may be in the making."""
    if not metrics.exists():
        return []
    return [
        json.loads(line)
        for line in metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]
