"""What a run can go on from: a few whole states, each a folder that all ranks wrote.

    OUT/states/step-00000010/   weights and AdamW's moments, by torch's distributed checkpoint
    OUT/states/best.json        the best validation so far, and its step

A rank writes what it holds, and reads what it needs of all files, so that nobody gathers a model
and a run may go on with another number of ranks. A state is made beside the others and renamed
once all of it is there; the newest ones stay, and that of the best validation. torch notes what is
where by pickle: take states of your own only.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import Tensor

from core.files import write_whole
from training.state import ADAMW_STATE, STATES, state_tensors

BEST_FILE = "best.json"
_PREFIX, _PARTIAL = "step-", ".partial"


@dataclass(frozen=True, slots=True)
class Best:
    """The best validation score of a run, and the step that it is of."""

    step: int
    score: float


def save(
    out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, keep: int
) -> None:
    """Writes the state after `step` steps; of the older ones the last `keep` - 1 stay, and that of
    the best validation. All ranks must call."""
    folder = out / STATES / f"{_PREFIX}{step:08}"
    partial = folder.with_suffix(_PARTIAL)
    _first(lambda: shutil.rmtree(partial, ignore_errors=True))
    tensors = dict(state_tensors(model, optimizer))
    with _alone_or_not():
        checkpoint.save(tensors, checkpoint_id=partial, no_dist=not dist.is_initialized())

    def settle() -> None:
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was begun again before it
        partial.rename(folder)
        best = read_best(out)
        for old in _states(out)[:-keep]:
            if best is None or _step(old) != best.step:
                shutil.rmtree(old)

    _first(settle)


def load(out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Goes on from the newest state in `out`: returns its step, 0 where there is none."""
    found = _states(out)
    if not found:
        return 0
    names = _names(found[-1])
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"weight/{name}"] = parameter.detach()
        for part in ADAMW_STATE:
            if f"{part}/{name}" in names:
                like = torch.zeros(()) if part == "step" else torch.zeros_like(parameter)
                tensors[f"{part}/{name}"] = like.detach()
    with _alone_or_not():
        checkpoint.load(tensors, checkpoint_id=found[-1], no_dist=not dist.is_initialized())
    for name, parameter in model.named_parameters():
        state = {p: tensors[f"{p}/{name}"] for p in ADAMW_STATE if f"{p}/{name}" in names}
        if state:
            optimizer.state[parameter] = state
    return _step(found[-1])


def load_weights(out: Path, model: torch.nn.Module, step: int | None = None) -> None:
    """The weights alone of the state after `step` steps (None: the newest), in one process."""
    folder = _states(out)[-1] if step is None else out / STATES / f"{_PREFIX}{step:08}"
    tensors = {f"weight/{name}": one.detach() for name, one in model.named_parameters()}
    with _alone_or_not():
        checkpoint.load(tensors, checkpoint_id=folder, no_dist=True)


def read_best(out: Path) -> Best | None:
    """The best validation so far, None before the first."""
    path = out / STATES / BEST_FILE
    return Best(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write_best(out: Path, best: Best) -> None:
    """Notes it. One process is to call."""
    (out / STATES).mkdir(exist_ok=True)
    text = json.dumps({"step": best.step, "score": best.score}) + "\n"
    write_whole(out / STATES / BEST_FILE, text)


def has_state(out: Path, step: int) -> bool:
    """Whether the state after `step` steps is there, whole."""
    return (out / STATES / f"{_PREFIX}{step:08}").is_dir()


def _states(out: Path) -> list[Path]:
    """The whole ones, the oldest first."""
    found = (out / STATES).glob(f"{_PREFIX}*")
    return sorted(path for path in found if path.suffix != _PARTIAL)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix(_PREFIX))


def _names(folder: Path) -> set[str]:
    return set(checkpoint.FileSystemReader(folder).read_metadata().state_dict_metadata)


@contextlib.contextmanager
def _alone_or_not() -> Iterator[None]:
    """torch warns of saving in a single process also where it is told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")
        yield


def _first(act: Callable[[], None]) -> None:
    """Has the first rank act while the others wait."""
    if not dist.is_initialized():
        act()
        return
    if dist.get_rank() == 0:
        act()
    dist.barrier()
