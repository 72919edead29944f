"""Files written whole: beside their place, then renamed, so that a reader never meets a half.
JSON lines, packed where the name ends in .gz: same lines, same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from core.errors import UsageError
from core.types import Json


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a file or a folder to. It takes the place of `path` when the
    block ends well; after an error nothing is left of it, and `path` is as it was.

    A folder takes the place of no folder that holds something.

    Raises:
        OSError: as writing and renaming raise it.
    """
    partial = beside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(partial)
    try:
        yield partial
        partial.replace(path)
    finally:
        _remove(partial)


def beside(path: Path) -> Path:
    """The name that `whole` gives: for processes that write parts of one folder together."""
    return path.with_name(path.name + ".partial")


def write_whole(path: Path, content: str | bytes) -> Path:
    """Writes a text (UTF-8, newlines as they are) or bytes; see `whole`."""
    with whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """(line number, object) of each line.

    Raises:
        UsageError: the file cannot be read, or a line is no JSON object; names the line.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    # Not splitlines: JSON may hold U+2028 and its like as they are.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: expected an object, got {record!r:.60}")
        yield number, record


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Writes the rows whole; returns how many.

    Raises:
        UsageError: the place cannot be written to.
    """
    count = 0
    try:
        with whole(path) as partial, partial.open("wb") as file, _packed(file, path) as lines:
            for count, row in enumerate(rows, 1):  # noqa: B007
                lines.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error}") from error
    return count


@contextmanager
def _packed(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """The file, or what packs into it. Neither name nor hour goes into the packed bytes."""
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
