"""The weights of a model, fetched to a node's cache before a replica starts there.

A start has a deadline and a download has none, so the two are kept apart, and a download tells how
far it is. Runs in the pool's process, or as a task on a node of a joined cluster: the function
travels as its code, so that the node need not have this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from core.errors import DataMissing
from serving.app import SPARSE_FILE
from serving.catalogue import ModelEntry

Step = int | str
"""Bytes in the cache so far; at the end the folder, or what kept it from coming."""

_ASKED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
_TELL_S = 15.0


def fetch(
    entry: ModelEntry, steps: Callable[..., Iterator[Step]], where: str, tell: Callable[[str], None]
) -> None:
    """Fetches what is not there. `steps` is what `fetch_steps` returns, or runs it elsewhere.

    Raises:
        DataMissing: it cannot be had.
    """
    last: Step = "nothing came"
    told = -1
    for last in steps(entry.source, entry.revision, _ASKED, [SPARSE_FILE], _TELL_S):
        if isinstance(last, int) and last != told:
            told = last
            tell(f"fetching {entry.source} {where}: {last / (1 << 30):.1f} GiB are there")
    if not isinstance(last, str) or last.startswith("failed: "):
        raise DataMissing(
            f"model {entry.name}: {entry.source} cannot be fetched {where}: "
            f"{str(last).removeprefix('failed: ')}. Is the hub reachable from there, and is the "
            "name right? A model that asks for consent takes a key in HF_TOKEN."
        )
    if entry.plain_attention and last.startswith("sparse: "):
        raise DataMissing(
            f"model {entry.name}: {last.removeprefix('sparse: ')}/{SPARSE_FILE} {where} would "
            "turn its dual chunk attention on, which vLLM does not have. Delete that file."
        )


def fetch_steps() -> Callable[..., Iterator[Step]]:
    """The function that fetches, made so that it travels as its code."""

    def steps(
        source: str, revision: str | None, asked: list[str], not_asked: list[str], tell_s: float
    ) -> Iterator[int | str]:
        """Downloads `source` in a thread. Yields the bytes that are there every `tell_s`, and at
        the end its folder, `sparse: ` in front where it holds a file that was not asked for; or
        `failed: ` and why."""
        import threading
        from pathlib import Path

        import huggingface_hub
        from huggingface_hub import constants

        cache = Path(constants.HF_HUB_CACHE)
        blobs = cache / f"models--{source.replace('/', '--')}" / "blobs"
        ended: list[str] = []

        def work() -> None:
            try:
                folder = huggingface_hub.snapshot_download(
                    source, revision=revision, allow_patterns=asked, ignore_patterns=not_asked
                )
            except Exception as error:  # noqa: BLE001 - it is told where it was asked for
                ended.append(f"failed: {type(error).__name__}: {error}")
                return
            left = [name for name in not_asked if (Path(folder) / name).exists()]
            ended.append(f"sparse: {folder}" if left else folder)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(tell_s)
        while thread.is_alive():
            yield sum(file.stat().st_size for file in blobs.glob("*") if file.is_file())
            thread.join(tell_s)
        yield ended[0]

    return steps
