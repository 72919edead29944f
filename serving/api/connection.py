"""One request over HTTP: whatever goes wrong on the way becomes an error of ours, here and once."""

from __future__ import annotations

import asyncio
import os
import resource
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
from yarl import URL

from core.errors import (
    BadReply,
    HarnessError,
    RequestFailed,
    RequestTimeout,
    ServerDied,
    UsageError,
)
from serving.api.outage import Trouble
from serving.api.wire import visible

REPLY_BYTES = 64 << 20
"""The longest body that is read. The ids of a 1M prompt and a reply's logprobs take 12 MB."""

OTHER_FILES = 256
"""Files that a process has open besides its connections, at most."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. `url`: complete."""

    method: Literal["GET", "POST"]
    url: URL
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to connect; between two bytes of a reply that has begun."""

    connect_s: float
    silence_s: float


class Connection:
    """The connections to one server, for as long as the context is open.

    `key` is sent and never told: texts that come back are rid of it. `where` names the server
    in errors; `own` says that it is a pool of ours, whose address nobody typed.
    """

    def __init__(
        self, where: URL, key: str | None, timeouts: Timeouts, *, azure: bool, own: bool
    ) -> None:
        self.where = str(where)
        self._key = key
        self._own = own
        self._timeouts = timeouts
        self._times: dict[float, aiohttp.ClientTimeout] = {}
        self._proxy = _proxy_for(where.host or "", where.scheme)
        self._http = aiohttp.ClientSession(
            headers=_headers(key, azure=azure),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Shorter than the 5 s after which common servers close an idle connection: a request
            # sent at that moment would be lost.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.close()

    async def send(self, request: Request, timeout_s: float) -> Response:
        """Sends, and reads the reply to its end, in `timeout_s` in all.

        Raises:
            Trouble: the connection was refused, or broke.
            RequestTimeout: no reply in time.
            BadReply: a reply without an end.
        """
        if timeout_s not in self._times:
            connect_s = self._timeouts.connect_s
            times = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s)
            self._times[timeout_s] = times
        try:
            async with self._http.request(
                request.method,
                request.url,
                data=request.body,
                proxy=self._proxy,
                allow_redirects=False,  # the key goes where the user said, nowhere else
                timeout=self._times[timeout_s],
            ) as response:
                body = await self._body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Trouble(self._nobody(error)) from error
        except TimeoutError as error:
            raise RequestTimeout(f"{self.where} did not reply within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            broke = f"the connection to {self.where} broke ({self._told(error)})"
            raise Trouble(RequestFailed(broke)) from error
        return Response(response.status, response.headers, body)

    def without_key(self, text: str) -> str:
        """A text that came from the server, or an error about it, to be told or kept."""
        return text if self._key is None else text.replace(self._key, "[key]")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if response.content.is_eof():  # short, and came with the headers
            return await response.content.read()
        parts: list[bytes] = []
        size = 0
        silence_s = self._timeouts.silence_s
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(silence_s) as silence:
                async for part in response.content.iter_any():
                    parts.append(part)
                    size += len(part)
                    if size > REPLY_BYTES:
                        response.close()
                        raise BadReply(f"{self.where} sent more than {REPLY_BYTES >> 20} MB")
                    silence.reschedule(now() + silence_s)
        except TimeoutError as error:
            if not silence.expired():
                raise
            raise RequestTimeout(
                f"{self.where} sent {size:,} bytes of a reply and then nothing for {silence_s:g} s"
            ) from error
        return b"".join(parts)

    def _nobody(self, error: Exception) -> HarnessError:
        if self._own:
            return ServerDied(f"the pool at {self.where} does not answer ({self._told(error)}).")
        return ServerDied(
            f"nobody answers at {self.where} ({self._told(error)}). "
            "Is the server running, and is the URL right?"
        )

    def _told(self, error: Exception) -> str:
        return self.without_key(visible(f"{type(error).__name__}: {error}".rstrip(": ")[:300]))


def allow_files(connections: int) -> None:
    """Lets this process open so many connections, and the files that it needs besides.

    Raises:
        UsageError: the machine does not allow it.
    """
    needed = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{connections} connections need {needed} open files, this machine allows {hard}: "
            f"give a --concurrency of at most {max(hard - OTHER_FILES, 1)}, or raise `ulimit -Hn`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def checked_url(text: str) -> URL:
    """The URL of an endpoint. Raises UsageError where it is none, or holds a password."""
    try:
        url = URL(text)
        _ = url.port
    except ValueError as error:
        raise UsageError(f"--endpoint {text!r} is no URL: {error}") from error
    if url.raw_user or url.raw_password:
        raise UsageError("--endpoint holds a user name or password; put keys in the environment")
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"--endpoint {text!r}: expected http://HOST[:PORT]/v1 or https://...")
    return url


def key_from(variable: str) -> str | None:
    """The key in an environment variable. Raises UsageError where it cannot be one."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        # Sent on, it would come back inside the HTTP library's error text.
        raise UsageError(f"the environment variable {variable} holds characters no key can have")
    return key or None


def _headers(key: str | None, *, azure: bool) -> dict[str, str]:
    # Replies are short; an unpacked one could be of any size.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if key is None:
        return headers
    return {**headers, **({"api-key": key} if azure else {"Authorization": f"Bearer {key}"})}


def _proxy_for(host: str, scheme: str) -> str | None:
    """The environment's proxy for a host. Never one between us and our own pool."""
    if host in ("127.0.0.1", "localhost", "::1") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(scheme)
