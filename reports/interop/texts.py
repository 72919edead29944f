"""The texts that turns read, for logs that quote them: a store keeps only where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.store import Cell, Store
from core.errors import UsageError
from core.types import Turn
from reports.explorer.chunks import GoneError, Remaker
from reports.interop.inspect_log import TextsOf


def texts_of(store: Store, data: Path | None, tokenizer: Path | None) -> TextsOf:
    """Makes the contexts of a run's samples again and cuts out what each turn read. `data`: the
    folder of the corpora, `tokenizer`: that of the run; without them they are looked for where
    the run had them."""
    given = str(tokenizer) if tokenizer else None
    settings, folder = store.settings() or {}, store.path.parent
    remaker = Remaker(settings, store.sessions(), data, folder, given)

    def texts(cell: Cell, row: Mapping[str, Any], turns: Sequence[Turn]) -> list[str]:
        try:
            haystack = remaker.haystack(cell, row)
        except GoneError as error:
            raise UsageError(
                f"--chunk-texts: {error} Give the tokenizer and the data of the run with "
                "--tokenizer and --data."
            ) from error
        return [haystack.read(turn.reads).text for turn in turns]

    return texts
