"""Local copies of the public corpora that some tasks need, found in the folder of `--data`."""

from __future__ import annotations

from pathlib import Path

from core.errors import DataMissing


class Corpora:
    """Corpora of one data folder; nothing is read before it is asked for."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir

    def essays_missing(self) -> DataMissing:
        """The error for a task that needs the essays."""
        return DataMissing(f"no essays in {self.data_dir}: give --data a folder that holds them")
