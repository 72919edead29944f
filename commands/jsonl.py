"""JSON lines as commands read and write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from core.errors import UsageError
from core.types import Json


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """(line number, object) of each line.

    Raises:
        UsageError: the file cannot be read, or a line is no JSON object; names the line.
    """
    try:
        # Not splitlines: JSON may hold U+2028 and its like as they are.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: expected an object, got {record!r:.60}")
        yield number, record


def write_jsonl(rows: Iterable[Mapping[str, object]], path: Path) -> int:
    """Writes beside the target and renames, so that a failure leaves no half a file."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            for count, row in enumerate(rows, 1):  # noqa: B007
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count
