"""Counts the bytes of all tensors that are held at once, and of what is read of weights' files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training import tensors


class LiveBytes(TorchDispatchMode):
    """`most`: bytes of the storages held at once, of those that an operation within the context
    read or made. Mapped files are no memory: see `counted_reads`, which must be within."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves((args, made)):
            if isinstance(one, Tensor):
                self._count(one.to_local() if isinstance(one, DTensor) else one)
        self.most = max(self.most, sum(size for _, size in self._held.values()))
        return made

    def _count(self, tensor: Tensor) -> None:
        self._held = {key: held for key, held in self._held.items() if not held[0].expired()}
        if not tensor.is_meta:
            storage = tensor.untyped_storage()
            self._held[storage._cdata] = StorageWeakRef(storage), storage.nbytes()


@contextlib.contextmanager
def counted_reads() -> Iterator[list[int]]:
    """Bytes of each piece that is read; pieces come as copies, so that what is held of them is
    counted, and not the mapped file."""
    read: list[int] = []
    plain = tensors.TensorFiles._slice

    def counted(self: Any, *where: Any) -> Tensor:
        with torch.utils._python_dispatch._disable_current_modes():
            piece = plain(self, *where).clone()
        read.append(piece.numel() * piece.element_size())
        return piece

    with patch.object(tensors.TensorFiles, "_slice", counted):
        yield read
