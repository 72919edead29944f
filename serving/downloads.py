"""Which commit of a model on the hub is meant: resolved, recorded with a run, pinned.

    run.py models fetch NAME    the weights into the cache of this machine (serving/fetch.py)
    run.py models pin NAME      the commit into serving/revisions.toml, which the catalogue reads

Replicas take the commit that the cache has under the entry's revision, and a run keeps it with its
settings. So it is never gone on with after the model changed on the hub and was fetched anew.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from core.errors import DataMissing, UsageError
from core.files import write_whole

REVISIONS_FILE = Path(__file__).with_name("revisions.toml")
HEAD = """# Commits of models on the hub, written by `run.py models pin`. An entry of the catalogue
# that names no revision of its own is served at the one here.
"""
COMMIT = re.compile(r"[0-9a-f]{40}")

Ask = Callable[[str, str | None], str]
"""(source, revision) -> the commit that the hub has under it now."""


def cached_commit(source: str, revision: str | None) -> str | None:
    """The commit that this machine's cache has under a revision (None: the main branch), None where
    it has none."""
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{source.replace('/', '--')}"
    name = folder / "refs" / (revision or "main")
    return name.read_text(encoding="utf-8").strip() if name.is_file() else None


def ask_hub(source: str, revision: str | None) -> str:
    """The commit that the hub has under a revision now.

    Raises:
        DataMissing: the hub cannot be reached, or has no such model or revision.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        commit: str | None = HfApi().model_info(source, revision=revision, timeout=30).sha
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
        raise DataMissing(
            f"{source}, revision {revision or 'main'}: the hub does not tell its commit "
            f"({type(error).__name__}: {error}). Is it reachable from here, and is the name right?"
        ) from error
    if commit is None:
        raise DataMissing(f"{source}, revision {revision or 'main'}: the hub tells no commit")
    return commit


def read_pins(path: Path = REVISIONS_FILE) -> Mapping[str, str]:
    """Source -> commit; empty where nothing is pinned.

    Raises:
        UsageError: the file is not one.
    """
    if not path.is_file():
        return {}
    try:
        pins = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    for source, commit in pins.items():
        if not (isinstance(commit, str) and COMMIT.fullmatch(commit)):
            raise UsageError(
                f"{path}: {source} is {commit!r}, expected a commit of 40 digits; "
                "`run.py models pin` writes them"
            )
    return pins


def pin(source: str, revision: str | None, ask: Ask = ask_hub, path: Path = REVISIONS_FILE) -> str:
    """Writes down the commit that the hub has now, and returns it. Raises as `ask`."""
    pins = {**read_pins(path), source: ask(source, revision)}
    lines = (f'"{name}" = "{commit}"\n' for name, commit in sorted(pins.items()))
    write_whole(path, HEAD + "".join(lines))
    return pins[source]
