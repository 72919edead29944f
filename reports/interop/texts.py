"""The texts that turns read, made again from the run's settings: a store keeps only where they
stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Turn
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials


class ReadTexts:
    """Makes the contexts of a run's samples again and cuts out what each turn read."""

    def __init__(self, seed: int, tokenizer: Path, data: Path | None) -> None:
        self._seed = seed
        self._materials = Materials(Tokenizer.load(tokenizer), Corpora(data))

    def __call__(self, row: Mapping[str, Any], turns: Sequence[Turn]) -> list[str]:
        """The text that each turn read, empty for one that read nothing.

        Raises:
            UsageError: the sample that is made is not the one that was asked.
        """
        at = Coordinates(row["index"], row["length"], self._seed)
        sample = find_task(row["task"]).sample(at, self._materials)
        if sample.id != row["id"]:
            raise UsageError(
                f"{row['task']} {row['length']} sample {row['index']}: what is made now has the id "
                f"{sample.id:.12}, the run's has {row['id']:.12}. Texts can be made again with the "
                "tokenizer and the data of the run only: give --tokenizer and --data."
            )
        tokenizer = self._materials.tokenizer
        ids = [one for block in sample.problem.context.tokens(tokenizer) for one in block]
        return [
            "\n".join(tokenizer.decode(ids[span.start : span.end]) for span in turn.reads)
            for turn in turns
        ]
