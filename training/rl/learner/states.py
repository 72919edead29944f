"""What a run can go on from: a few whole states, each a folder that all ranks wrote.

    OUT/states/step-00000010/rank-0000.safetensors   a rank's rows of the weights and of AdamW's
                                                     moments, by names such as exp_avg/NAME
    OUT/states/step-00000010/state.json              of each tensor its shape and each rank's rows
    OUT/states/best.json                             the best validation so far, and its step

A rank writes what it holds, and reads the rows that it needs of all files, so that nobody gathers
a model and a run may go on with another number of ranks. A state is made beside the others and
renamed once all of it is there; the newest ones stay, and that of the best validation.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor
from torch.distributed.tensor import DTensor

from core.errors import UsageError
from core.files import beside, whole, write_whole
from core.names import explained
from training.state import ADAMW_STATE, STATES, state_tensors
from training.tensors import Piece, TensorFiles, edges, own_rows, write_tensors

BEST_FILE, LAYOUT_FILE = "best.json", "state.json"
_PREFIX = "step-"


class Placed(BaseModel):
    """A tensor's shape, and where each file's rows of it begin, in the order of the ranks; the
    last edge is where they end. A number without axes is one row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    edges: tuple[int, ...]

    @model_validator(mode="after")
    def _covers(self) -> Self:
        rows = self.shape[0] if self.shape else 1
        if [*self.edges] != sorted(self.edges) or [*self.edges[:1], *self.edges[-1:]] != [0, rows]:
            raise ValueError(f"edges {list(self.edges)}, expected ascending ones from 0 to {rows}")
        return self


class Layout(BaseModel):
    """What a state's folder holds: a file of each rank, and in them tensors by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ranks: int = Field(ge=1)
    tensors: Mapping[str, Placed]


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
    rank, ranks = _place()
    with _made_together(_folder(out, step)) as folder:
        tensors = dict(state_tensors(model, optimizer))
        own = {name: one for name, one in tensors.items() if rank == 0 or isinstance(one, DTensor)}
        write_tensors(_file(folder, rank), ((name, own_rows(one)[0]) for name, one in own.items()))
        if rank == 0:
            placed = {name: _placed(one, ranks) for name, one in tensors.items()}
            layout = Layout(ranks=ranks, tensors=placed).model_dump_json(indent=1) + "\n"
            write_whole(folder / LAYOUT_FILE, layout)
    if rank == 0:
        best = read_best(out)
        for old in _states(out)[:-keep]:
            if best is None or _step(old) != best.step:
                shutil.rmtree(old)


def load(out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Goes on from the newest state in `out`: returns its step, 0 where there is none.

    Raises:
        UsageError: it cannot be read, or is another model's.
    """
    found = _states(out)
    if not found:
        return 0
    with _tensors(found[-1]) as files, torch.no_grad():
        for name, parameter in model.named_parameters():
            files.fill(f"weight/{name}", parameter)
            state: dict[str, Tensor] = {}
            for part in ADAMW_STATE:
                if f"{part}/{name}" in files.shapes:
                    # AdamW's fused kernel wants its count of steps where the weights are.
                    count = torch.zeros((), device=parameter.device)
                    state[part] = count if part == "step" else torch.zeros_like(parameter)
                    files.fill(f"{part}/{name}", state[part])
            if state:
                optimizer.state[parameter] = state
    return _step(found[-1])


def load_weights(out: Path, model: torch.nn.Module, step: int | None = None) -> None:
    """The weights alone of the state after `step` steps (None: the newest).

    Raises:
        UsageError: it cannot be read, or is another model's.
    """
    folder = _states(out)[-1] if step is None else _folder(out, step)
    with _tensors(folder) as files, torch.no_grad():
        for name, parameter in model.named_parameters():
            files.fill(f"weight/{name}", parameter)


def read_best(out: Path) -> Best | None:
    """The best validation so far, None before the first."""
    path = out / STATES / BEST_FILE
    return Best(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write_best(out: Path, best: Best) -> None:
    """Notes it. One process is to call."""
    text = json.dumps({"step": best.step, "score": best.score}) + "\n"
    write_whole(out / STATES / BEST_FILE, text)


def has_state(out: Path, step: int) -> bool:
    """Whether the state after `step` steps is there, whole."""
    return _folder(out, step).is_dir()


def _states(out: Path) -> list[Path]:
    """The whole ones, the oldest first."""
    found = (out / STATES).glob(f"{_PREFIX}*")
    return sorted(path for path in found if path.name.removeprefix(_PREFIX).isdecimal())


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix(_PREFIX))


def _folder(out: Path, step: int) -> Path:
    return out / STATES / f"{_PREFIX}{step:08}"


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:04}.safetensors"


def _placed(tensor: Tensor, ranks: int) -> Placed:
    rows = tensor.shape[0] if tensor.ndim else 1
    at = edges(rows, ranks) if isinstance(tensor, DTensor) else [0, rows]
    return Placed(shape=tuple(tensor.shape), edges=tuple(at))


def _tensors(folder: Path) -> TensorFiles:
    """What all ranks wrote into a state's folder."""
    path = folder / LAYOUT_FILE
    try:
        layout = Layout.model_validate_json(path.read_text(encoding="utf-8"))
        for rank in range(layout.ranks):
            _file(folder, rank).stat()
    except (OSError, ValidationError) as error:
        what = explained(error) if isinstance(error, ValidationError) else str(error)
        raise UsageError(
            f"{path}: no state to go on from: {what}. Remove {folder.name} to go on from an "
            "earlier one, or begin anew in another --out."
        ) from error
    shapes = {name: placed.shape for name, placed in layout.tensors.items()}
    pieces = {
        name: [
            Piece(_file(folder, rank), start, end)
            for rank, (start, end) in enumerate(pairwise(placed.edges))
        ]
        for name, placed in layout.tensors.items()
    }
    return TensorFiles(folder, shapes, pieces)


def _place() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextlib.contextmanager
def _made_together(folder: Path) -> Iterator[Path]:
    """A folder beside this one for all ranks to write to. The first rank makes it, and puts it in
    the other's place once all have written."""
    if _place()[0] > 0:
        _wait()
        yield beside(folder)
        _wait()
    else:
        with whole(folder) as made:
            made.mkdir()
            _wait()
            yield made
            _wait()
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was begun again before it
    _wait()


def _wait() -> None:
    if dist.is_initialized():
        dist.barrier()
