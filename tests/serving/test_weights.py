"""New weights for all replicas: what a file's name may be, and the calls that a replica gets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from core.errors import UsageError
from serving.weights import WeightsCommand, WeightsExtension, obey, read_weights


class Replicas:
    """A deployment handle whose replicas have workers of the given versions."""

    def __init__(self, *workers: list[int], error: Exception | None = None) -> None:
        self.workers, self.error = workers, error
        self.calls: list[str] = []

    def broadcast(self, call: str, **arguments: Any) -> Any:
        self.calls.append(arguments.get("method", call))
        failed = self.error is not None and call == "collective_rpc"

        def results(*, timeout_s: float) -> list[Any]:
            if failed:
                assert self.error is not None
                raise self.error
            return list(self.workers)

        return SimpleNamespace(results=results)


LOAD = WeightsCommand(name="step-7.safetensors", version=7)


def test_replicas_pause_load_and_go_on() -> None:
    replicas = Replicas([7], [7])
    assert obey(replicas, LOAD, timeout_s=1) == [7, 7]
    assert replicas.calls == ["pause", "load_weights_file", "resume"]


def test_a_replica_is_as_old_as_its_oldest_worker() -> None:
    replicas = Replicas([7, 6], [7, 7])
    assert obey(replicas, WeightsCommand(), timeout_s=1) == [6, 7]
    assert replicas.calls == ["tell_weights_version"]


def test_replicas_go_on_where_loading_failed() -> None:
    replicas = Replicas([0], error=ValueError("no such layer"))
    with pytest.raises(ValueError, match="no such layer"):
        obey(replicas, LOAD, timeout_s=1)
    assert replicas.calls[-1] == "resume"


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = {"a": torch.arange(4.0), "b": torch.ones(2, 3, dtype=torch.bfloat16)}
    save_file(written, tmp_path / "step-1.safetensors")
    read = dict(read_weights(tmp_path, "step-1.safetensors"))
    assert read.keys() == written.keys()
    assert all(torch.equal(read[name], written[name]) for name in written)


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/outside.safetensors",
        "inner/step-1.safetensors",
        "..",
        ".hidden.safetensors",
        "step-1.bin",
        "step-1.safetensors\n",
        "missing.safetensors",
        "link.safetensors",
        "",
    ],
)
def test_no_other_file_can_be_reached(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "weights"
    (folder / "inner").mkdir(parents=True)
    for path in ("outside.safetensors", "weights/inner/step-1.safetensors", "weights/step-1.bin"):
        save_file({"a": torch.zeros(1)}, tmp_path / path)
    save_file({"a": torch.zeros(1)}, folder / ".hidden.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    with pytest.raises(UsageError, match="weights file"):
        read_weights(folder, name)


def test_nothing_of_the_extension_hides_a_part_of_vllms_worker() -> None:
    """vLLM refuses to start otherwise."""
    worker = pytest.importorskip("vllm.v1.worker.worker_base").WorkerBase
    names = [name for name in dir(WeightsExtension) if not name.startswith("__")]
    assert names
    assert not [name for name in names if hasattr(worker, name)]
