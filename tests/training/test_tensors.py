"""Tensors in files, a piece at a time: what is written is what safetensors reads, and back."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.errors import UsageError
from training.tensors import (
    HEADER_BYTES,
    Piece,
    TensorFiles,
    checkpoint_tensors,
    edges,
    write_tensors,
)


def test_safetensors_reads_what_is_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shapes = [(5, 3), (7,), (), (0, 4), (2, 3, 4)]
    for dtype in (torch.float32, torch.bfloat16):
        written = {f"tensor {shape}": torch.randn(shape).to(dtype) for shape in shapes}
        written["turned"] = torch.randn(4, 6).to(dtype).T  # not contiguous
        write_tensors(tmp_path / "some.safetensors", written.items())
        found = load_file(tmp_path / "some.safetensors")
        assert found.keys() == written.keys()
        for name, tensor in written.items():
            assert found[name].dtype == dtype
            assert torch.equal(found[name], tensor), name


def test_no_more_than_two_tensors_are_held_while_they_are_written(tmp_path: Path) -> None:
    made: list[weakref.ref[Tensor]] = []

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for number in range(6):
            assert sum(one() is not None for one in made) <= 1
            tensor = torch.full((8,), float(number))
            made.append(weakref.ref(tensor))
            yield str(number), tensor
            del tensor

    write_tensors(tmp_path / "some.safetensors", tensors())
    assert load_file(tmp_path / "some.safetensors").keys() == set("012345")


def test_a_file_that_was_not_finished_does_not_take_the_place_of_a_whole_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "some.safetensors"
    write_tensors(path, [("a", torch.ones(2))])

    def breaks() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.zeros(2)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_tensors(path, breaks())
    assert torch.equal(load_file(path)["a"], torch.ones(2))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_tensors_of_another_type_or_too_many_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    with pytest.raises(ValueError, match="b is BF16"):
        write_tensors(path, [("a", torch.ones(1)), ("b", torch.ones(1, dtype=torch.bfloat16))])
    with pytest.raises(ValueError, match="1 tensors need a header of"):
        write_tensors(path, [("a" * HEADER_BYTES, torch.ones(1))])
    assert not path.exists()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_ranks_hold_what_torch_chunk_gives_them(ranks: int) -> None:
    for rows in range(1, 12):
        at = edges(rows, ranks)
        chunks = [len(one) for one in torch.zeros(rows).chunk(ranks)]
        chunks += [0] * (ranks - len(chunks))
        assert [end - start for start, end in pairwise(at)] == chunks


def in_pieces(folder: Path, tensor: Tensor, at: list[int]) -> TensorFiles:
    pieces = []
    for number, (start, end) in enumerate(pairwise(at)):
        pieces.append(Piece(folder / f"{number}.safetensors", start, end))
        write_tensors(pieces[-1].file, [("a", tensor[start:end])])
    return TensorFiles(folder, {"a": tuple(tensor.shape)}, {"a": pieces})


def test_rows_are_read_from_the_files_that_they_lie_in(tmp_path: Path) -> None:
    whole = torch.arange(33.0).reshape(11, 3)
    with in_pieces(tmp_path, whole, [0, 4, 4, 9, 11]) as files:
        for start in range(12):
            for end in range(start, 12):
                parts = list(files.rows("a", start, end))
                if start == end:
                    assert not parts
                    continue
                assert torch.equal(torch.cat([part for _, part in parts]), whole[start:end])
                firsts = [first for first, _ in parts]
                assert firsts == sorted({start, *(n for n in (4, 9) if start < n < end)})
        filled = torch.empty(11, 3, dtype=torch.bfloat16)
        files.fill("a", filled)
        assert torch.equal(filled.float(), whole)


def test_another_models_weights_are_refused(tmp_path: Path) -> None:
    with in_pieces(tmp_path, torch.ones(4, 2), [0, 2, 4]) as files:
        with pytest.raises(
            UsageError, match=r"one of shape \[4, 2\] called a, expected .*\[2, 4\]"
        ):
            files.fill("a", torch.empty(2, 4))
        with pytest.raises(UsageError, match="got none called b"):
            files.fill("b", torch.empty(1))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UsageError, match=r"model\.safetensors: cannot be read"):
        checkpoint_tensors(tmp_path)
    with in_pieces(tmp_path, torch.ones(4, 2), [0, 2, 4]) as files:
        (tmp_path / "1.safetensors").unlink()
        with pytest.raises(UsageError, match=r"1\.safetensors: cannot be read"):
            files.fill("a", torch.empty(4, 2))


def test_a_checkpoint_in_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "two.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")  # not of the index
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with checkpoint_tensors(tmp_path) as files:
        a, b = torch.empty(2, 2), torch.empty(3)
        files.fill("a", a)
        files.fill("b", b)
    assert (a.sum(), b.sum()) == (4, 0)
