"""New weights for the replicas of a running pool (training), without a restart.

    owner writes FOLDER/NAME.safetensors -> every replica pauses: what runs ends, caches empty
        -> every worker reads the file -> replicas go on -> each tells the version it has

It is off unless a pool is started with a weights folder. The folder comes from whoever starts
the pool; a call brings a bare file name, and safetensors hold numbers only, so a caller can
neither reach another file nor have code run. Commands come from the pool's owner through the
pipe that it holds (serving/process/server.py): no port is opened for them.

The calls are written against Ray Serve 2.60.0 and vLLM 0.29.0. Not run: GPUs, tensor parallel
replicas, several nodes. On several nodes the folder must be on storage that all of them see.
tests/training/rl/test_real_pool_engine.py runs it on CPUs of one machine, on loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.safetensors")


class WeightsCommand(BaseModel):
    """What an owner asks for: load the file called `name` as `version`, or, where `name` is
    None, only tell the versions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = None
    version: int = 0


# -- in a replica's workers --------------------------------------------------------------------


def extension_arguments(folder: Path) -> dict[str, Any]:
    """vLLM's engine arguments that let its workers take weights from `folder`."""
    return {
        "worker_extension_cls": f"{__name__}.{WeightsExtension.__name__}",
        "additional_config": {"weights_folder": str(folder)},
    }


class WeightsExtension:
    """What vLLM adds to its worker class (`worker_extension_cls`); called by collective_rpc."""

    weights_version = 0
    """0 is the checkpoint that the replica began with."""

    def load_weights_file(self, name: str, version: int) -> int:
        """Replaces the worker's weights by those of the file. Returns `version`."""
        worker: Any = self
        folder = Path(worker.vllm_config.additional_config["weights_folder"])
        reload(worker, read_weights(folder, name))
        self.weights_version = version
        return version

    def tell_weights_version(self) -> int:
        """The version of the last file that was loaded."""
        return self.weights_version


def reload(worker: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Replaces the weights of a vLLM worker, by their names in the checkpoint. The caller sees
    to it that no request runs and that prefixes of the old weights are dropped.

    On CPUs vLLM packs each weight for oneDNN and answers from the packed copy. Its own reload
    packs every layer anew but an output matrix tied to the embedding, which has no weight of its
    own in the checkpoint: that copy would stay the old one, so it is packed here.
    """
    worker.model_runner.reload_weights(weights_iterator=iter(weights))
    model = worker.get_model()
    if model.config.tie_word_embeddings:
        model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


def read_weights(folder: Path, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a safetensors file in `folder`, by name, read one at a time.

    Raises:
        UsageError: `name` is not the bare name of a safetensors file there.
    """
    if not _FILE_NAME.fullmatch(name):
        raise UsageError(f"weights file {name!r}: expected a bare name that ends in .safetensors")
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"weights file {name!r}: there is none in the pool's weights folder")
    return _tensors(path)


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            yield name, file.get_tensor(name)


# -- in the process that holds the pool ----------------------------------------------------------


def obey(handle: Any, command: WeightsCommand, *, timeout_s: float) -> list[int]:
    """Does it on all replicas behind `handle`, a Ray Serve deployment handle of LLMServer, and
    returns the version of each: the lowest of its workers'.

    Raises:
        TimeoutError: a replica did not answer in time.
        Exception: what a replica raises, Ray's errors of a dead one included.
    """
    if command.name is None:
        return _call_workers(handle, "tell_weights_version", timeout_s, ())
    try:
        # Whatever runs ends with the weights that it began with; then the caches are emptied.
        _ask_all(handle, "pause", timeout_s, mode="wait", clear_cache=True)
        return _call_workers(
            handle, "load_weights_file", timeout_s, (command.name, command.version)
        )
    finally:
        _ask_all(handle, "resume", timeout_s)


def _call_workers(
    handle: Any, method: str, timeout_s: float, arguments: tuple[Any, ...]
) -> list[int]:
    replicas = _ask_all(handle, "collective_rpc", timeout_s, method=method, args=arguments)
    return [min(workers) for workers in replicas]


def _ask_all(handle: Any, call: str, timeout_s: float, **arguments: Any) -> list[Any]:
    answers: list[Any] = handle.broadcast(call, **arguments).results(timeout_s=timeout_s)
    return answers
