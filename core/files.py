"""Files written whole: beside their place, then renamed, so that a reader never meets a half."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a file or a folder to. It takes the place of `path` when the
    block ends well; after an error nothing is left of it, and `path` is as it was.

    A folder takes the place of no folder that holds something.

    Raises:
        OSError: as writing and renaming raise it.
    """
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(partial)
    try:
        yield partial
        partial.replace(path)
    finally:
        _remove(partial)


def write_whole(path: Path, content: str | bytes) -> Path:
    """Writes a text (UTF-8, newlines as they are) or bytes; see `whole`."""
    with whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
