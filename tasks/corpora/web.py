"""Where data sets come from: the one seam between `run.py data fetch` and the network.

A server that is not there is told within seconds: it is knocked at before the hub's own
programs, with their long retries, are let at it, and not again once it did not answer.
Nothing that is fetched is run: no scripts of data sets, no pickles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from core.errors import RequestFailed

CONNECT_S, READ_S = 5.0, 60.0
WAITS_S = (0.5, 2.0)
"""Pauses between the attempts at an address; one more attempt than pauses."""

MAX_PAGE_BYTES = 64 << 20

CONVERTED = "refs/convert/parquet"
"""The hub's own copy of data sets that still are scripts."""

Result = TypeVar("Result")


class Source(Protocol):
    """All that fetching asks of the world. Each raises `RequestFailed`."""

    def rows(self, data_set: str, config: str, split: str) -> Iterable[Mapping[str, Any]]:
        """Rows of a data set of the hub, in order."""
        ...

    def file(self, data_set: str, name: str) -> Path:
        """A local copy of a file of a data set of the hub."""
        ...

    def page(self, url: str) -> bytes | None:
        """What an address holds; None if it says that there is nothing (404, 410)."""
        ...


class Web:
    """The network. `pause` waits between attempts."""

    def __init__(self, pause: Callable[[float], None] = time.sleep) -> None:
        self._pause = pause
        self._silent: dict[str, str] = {}
        self._answered: set[str] = set()

    def rows(self, data_set: str, config: str, split: str) -> Iterable[Mapping[str, Any]]:
        """See `Source`. A data set that is still a script is taken in the hub's own parquet."""
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
        from huggingface_hub.errors import HTTPError

        self._knock_at_hub()
        problem: Exception | None = None
        for revision in (None, CONVERTED):
            try:
                return _as_rows(load_dataset(data_set, config, split=split, revision=revision))
            except (OSError, ValueError, RuntimeError, HTTPError, DatasetsError) as error:
                problem = problem or error
        raise RequestFailed(f"{data_set}: {_line(problem)}") from problem

    def file(self, data_set: str, name: str) -> Path:
        """See `Source`. A file that came in part is gone on with."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HTTPError

        self._knock_at_hub()
        try:
            return Path(hf_hub_download(data_set, name, repo_type="dataset"))
        except (OSError, ValueError, HTTPError) as error:
            raise RequestFailed(f"{data_set}/{name}: {_line(error)}") from error

    def page(self, url: str) -> bytes | None:
        """See `Source`. http, https, and file for local copies; at most 64 MiB."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            path = Path(url2pathname(parts.path))
            try:
                return path.read_bytes() if path.exists() else None
            except OSError as error:
                raise RequestFailed(f"{url}: {_line(error)}") from error
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise RequestFailed(f"{url!r:.100}: expected an http, https or file address")
        return self._patiently(url, lambda: _get(url))

    def _knock_at_hub(self) -> None:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
            raise RequestFailed("HF_HUB_OFFLINE is set")
        if urlsplit(endpoint).netloc not in self._answered:
            self._patiently(endpoint, lambda: _head(endpoint))

    def _patiently(self, url: str, ask: Callable[[], Result]) -> Result:
        host = urlsplit(url).netloc
        if host in self._silent:
            raise RequestFailed(f"{host}: {self._silent[host]}")
        for wait in (*WAITS_S, None):
            try:
                result = ask()
            except httpx.HTTPError as error:
                refused = isinstance(error, httpx.HTTPStatusError) and (
                    error.response.status_code < 500 and error.response.status_code != 429
                )
                if not refused and wait is not None:
                    self._pause(wait)
                    continue
                if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    self._silent[host] = _line(error)
                raise RequestFailed(f"{url}: {_line(error)}") from error
            self._answered.add(host)
            return result
        raise AssertionError("the last attempt returns or raises")


def _as_rows(loaded: Any) -> Iterable[Mapping[str, Any]]:
    rows: Iterable[Mapping[str, Any]] = loaded
    return rows


def _head(url: str) -> None:
    # Any answer will do: it is there.
    httpx.head(url, timeout=httpx.Timeout(READ_S, connect=CONNECT_S))


def _get(url: str) -> bytes | None:
    timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
    with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
        if response.status_code in (404, 410):
            return None
        response.raise_for_status()
        parts: list[bytes] = []
        size = 0
        for block in response.iter_bytes():
            parts.append(block)
            size += len(block)
            if size > MAX_PAGE_BYTES:
                raise RequestFailed(f"{url}: more than {MAX_PAGE_BYTES:,} bytes")
    return b"".join(parts)


def _line(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.200}"
