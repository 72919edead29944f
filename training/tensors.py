"""Tensors in safetensors files, written and read a piece at a time: no process need hold a model.

    write_tensors   writes an iterator's tensors as they come
    TensorFiles     reads rows of tensors: of a checkpoint, or of one cut into several files
    own_rows        the rows that this process holds of a tensor

A row is a place of a tensor's first axis. FSDP2 shards by rows: rank k of N holds the k-th of N
equal runs, the last ones shorter or empty (torch.chunk). Format:
https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor

from core.errors import UsageError
from core.files import whole

HEADER_BYTES = 1 << 20
"""Kept free for the header of a file that is written as its tensors come: it stands first and is
known last. Of a model of 80 layers it takes a tenth of that; blanks fill the rest."""
FORMAT_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def write_tensors(path: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Writes the file whole, from tensors of one type by their names. While the next is made, the
    one before may still be held; no earlier one is.

    Raises:
        ValueError: a tensor of another type than those before, or more than the header can name.
        OSError: as writing raises it.
    """
    entries: dict[str, dict[str, object]] = {}
    end = 0
    with whole(path) as partial, partial.open("wb") as file:
        file.seek(8 + HEADER_BYTES)
        for name, tensor in tensors:
            kind = FORMAT_NAMES[tensor.dtype]
            if any(entry["dtype"] != kind for entry in entries.values()):
                raise ValueError(f"{path}: {name} is {kind}, those before it are not")
            flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
            file.write(flat.numpy().data)
            start, end = end, end + flat.numel()
            entries[name] = {
                "dtype": kind,
                "shape": list(tensor.shape),
                "data_offsets": [start, end],
            }
        header = json.dumps(entries).encode()
        if len(header) > HEADER_BYTES:
            raise ValueError(f"{path}: {len(entries)} tensors need a header of {len(header)} bytes")
        file.seek(0)
        file.write(HEADER_BYTES.to_bytes(8, "little") + header.ljust(HEADER_BYTES))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows from `start` up to `end` of a tensor: what a file holds under the tensor's name."""

    file: Path
    start: int
    end: int


class TensorFiles:
    """Tensors by name, each cut by rows into pieces that follow each other. Files stay open within
    the context. `shapes`: of the whole tensors. What is read is mapped, and comes from the disk as
    it is copied."""

    def __init__(
        self,
        where: Path,
        shapes: Mapping[str, Sequence[int]],
        pieces: Mapping[str, Sequence[Piece]],
    ) -> None:
        self.where, self.shapes, self.pieces = where, shapes, pieces
        self._stack = ExitStack()
        self._files: dict[Path, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.clear()
        self._stack.close()

    def rows(self, name: str, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """Rows from `start` up to `end`, as they lie in the files: the first row of each part, and
        the part.

        Raises:
            UsageError: a file cannot be read.
        """
        for piece in self.pieces[name]:
            first, last = max(start, piece.start), min(end, piece.end)
            if first < last:
                yield first, self._slice(name, piece, first, last)

    def fill(self, name: str, tensor: Tensor) -> None:
        """Copies what this process holds of `tensor` from the files, in the tensor's own type.

        Raises:
            UsageError: no such tensor, or one of another shape; or a file cannot be read.
        """
        shape = self.shapes.get(name)
        if shape is None or tuple(shape) != tuple(tensor.shape):
            found = "none" if shape is None else f"one of shape {list(shape)}"
            raise UsageError(
                f"{self.where}: got {found} called {name}, expected shape {list(tensor.shape)}: "
                "these are another model's weights"
            )
        own, start = own_rows(tensor)
        if not shape:
            own, start = own.reshape(1), 0
        for first, part in self.rows(name, start, start + len(own)):
            own[first - start : first - start + len(part)].copy_(part)

    def _slice(self, name: str, piece: Piece, first: int, last: int) -> Tensor:
        try:
            if piece.file not in self._files:
                opened = safe_open(piece.file, framework="pt")
                self._files[piece.file] = self._stack.enter_context(opened)
            file = self._files[piece.file]
            if not self.shapes[name]:
                return file.get_tensor(name).reshape(1)
            found: Tensor = file.get_slice(name)[first - piece.start : last - piece.start]
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{piece.file}: cannot be read: {error}") from error
        return found


def checkpoint_tensors(folder: Path) -> TensorFiles:
    """The weights of a checkpoint: model.safetensors, or the files that its index names.

    Raises:
        UsageError: there are none, or one cannot be read.
    """
    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    if index.is_file():
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        files = [folder / name for name in sorted(set(named))]
    shapes: dict[str, tuple[int, ...]] = {}
    pieces: dict[str, list[Piece]] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - the file is no mapping
                    shape = shapes[name] = tuple(opened.get_slice(name).get_shape())
                    pieces[name] = [Piece(file, 0, shape[0] if shape else 1)]
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{file}: cannot be read: {error}") from error
    return TensorFiles(folder, shapes, pieces)


def edges(rows: int, ranks: int) -> list[int]:
    """Where each rank's run of the rows begins, and where the last one's ends: [ranks + 1]."""
    share = -(-rows // ranks)
    return [min(rank * share, rows) for rank in range(ranks + 1)]


def own_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """What this process holds of a tensor, to read and to write, and which row it begins with. Of
    a tensor that is not sharded that is all of it.

    Raises:
        RuntimeError: it is sharded otherwise than by runs of rows over one mesh.
    """
    if not isinstance(tensor, DTensor):
        return tensor.detach(), 0
    mesh = tensor.device_mesh
    at = edges(tensor.shape[0], mesh.size())
    rank = mesh.get_local_rank()
    own: Tensor = tensor.detach().to_local()
    if not tensor.placements[0].is_shard(0) or len(own) != at[rank + 1] - at[rank]:
        raise RuntimeError(
            f"rank {rank} of {mesh.size()} holds {len(own)} of {tensor.shape[0]} rows, placed as "
            f"{tensor.placements}; expected rows {at[rank]} to {at[rank + 1]}"
        )
    return own, at[rank]
