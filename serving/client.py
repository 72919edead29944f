"""One async client for every OpenAI-compatible server: our pool, vLLM, OpenAI, Azure.

Retries, bounded, with exponential backoff and jitter: on transport errors, 429 (its
Retry-After is honoured) and 5xx, and on nothing else. A reply that does not come in time is
not asked for again: the server may still be at work on it.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import httpx

from core.errors import (
    HarnessError,
    PromptTooLong,
    RequestFailed,
    RequestTimeout,
    ServerDied,
    UsageError,
)
from core.tokens import Tokenizer
from core.types import Message, Sampling, Turn
from serving.wire import Reply, error_text, read_reply, refusal, request_body

LONG_PROMPT_CHARS = 20_000
"""Prompts above this are tokenized in a thread, so that the event loop keeps turning."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach a server. Times in seconds.

    `url`: up to and including `/v1`; for Azure the resource, `https://NAME.openai.azure.com`.
    `key_env`: the environment variable that holds the key; it is read when the client opens.
    `plain_openai`: leave out top_k and repetition_penalty, which OpenAI's own servers refuse.
    `azure_api_version`: turns on Azure's style: api-key header, deployment in the path.
    `window_tokens`: the model's window, checked before sending; servers may otherwise cut
    the reply budget without a word. None leaves the check to the server.
    """

    url: str
    key_env: str = "OPENAI_API_KEY"
    plain_openai: bool = False
    azure_api_version: str | None = None
    window_tokens: int | None = None
    connections: int = 64
    connect_timeout_s: float = 10.0
    reply_timeout_s: float = 1800.0
    retries: int = 5
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0


class Client:
    """Asks one server for turns. An async context manager with one owner: it owns its
    connections, and closes them on the way out.

        async with Client(ClientOptions("http://127.0.0.1:8000/v1"), tokenizer) as client:
            turn = await client.turn("m", messages, max_tokens=128, sampling=GREEDY, tag="a")
    """

    def __init__(
        self,
        options: ClientOptions,
        tokenizer: Tokenizer | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.options = options
        self._tokenizer = tokenizer
        self._transport = transport
        self._sleep = sleep
        self._jitter = random.Random()
        self._key: str | None = None
        self._http: httpx.AsyncClient | None = None
        url = _checked_url(options.url)
        self._where = f"{url.scheme}://{url.netloc.decode()}{url.path}"
        self._loopback = url.host in ("127.0.0.1", "localhost", "::1")

    def __repr__(self) -> str:
        return f"Client({self._where})"

    async def __aenter__(self) -> Self:
        options = self.options
        self._key = _key_from(options.key_env)
        self._http = httpx.AsyncClient(
            headers=self._headers(),
            timeout=httpx.Timeout(
                options.reply_timeout_s, connect=options.connect_timeout_s, pool=None
            ),
            limits=httpx.Limits(
                max_connections=options.connections,
                max_keepalive_connections=options.connections,
            ),
            transport=self._transport,
            # A proxy from the environment must not stand between us and our own pool.
            trust_env=not self._loopback,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _headers(self) -> dict[str, str]:
        if self._key is None:
            return {}
        if self.options.azure_api_version is not None:
            return {"api-key": self._key}
        return {"Authorization": f"Bearer {self._key}"}

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
        with_ids: bool = False,
    ) -> Turn:
        """One request, one reply. `with_ids` asks for token ids and logprobs too (training).

        Raises:
            PromptTooLong: prompt and reply budget exceed the window.
            RequestRejected: the server refused (4xx).
            RequestTimeout: no reply within `reply_timeout_s`.
            ServerDied: nobody listens, retries included.
            RequestFailed: any other failure that outlasted the retries.
        """
        started = time.perf_counter()
        prompt = await self._prompt(messages)
        reply = await self._reply(model, prompt, max_tokens, sampling, with_ids)
        return self._to_turn(reply, messages, tag, prompt, time.perf_counter() - started)

    async def complete(
        self, model: str, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling
    ) -> Reply:
        """Token ids in, token ids and logprobs out: nothing is tokenized on the way (training).

        Raises as `turn` does, and RequestFailed also where the server read other ids.
        """
        reply = await self._reply(model, list(prompt_ids), max_tokens, sampling, with_ids=True)
        if reply.prompt_ids != tuple(prompt_ids):
            raise RequestFailed(f"{self._where} read other prompt ids than it was sent")
        return reply

    async def models(self) -> list[str]:
        """Names of the models that the server offers. Raises as `turn` does."""
        data = await self._send("GET", self._url("", "/models"), None)
        try:
            return [str(entry["id"]) for entry in data["data"]]
        except (KeyError, TypeError) as error:
            raise RequestFailed(
                f"{self._where}/models sent no list of models: {str(data)[:300]}"
            ) from error

    async def check(self, model: str) -> None:
        """Fails early and clearly where `model` cannot be asked here.

        Raises:
            UsageError: the server offers other models only.
            HarnessError: the server cannot be reached, as `turn` raises it.
        """
        if self.options.azure_api_version is not None:
            return  # Azure lists models of the resource, not its deployments.
        offered = await self.models()
        if model not in offered:
            raise UsageError(
                f"{self._where} does not serve {model!r}; it serves: {', '.join(offered)}. "
                "Name one of these with --models."
            )

    # -- inside ------------------------------------------------------------------------------

    @property
    def _plain(self) -> bool:
        return self.options.plain_openai or self.options.azure_api_version is not None

    async def _reply(
        self,
        model: str,
        prompt: Sequence[Message] | list[int],
        max_tokens: int,
        sampling: Sampling,
        with_ids: bool,
    ) -> Reply:
        if isinstance(prompt, list):
            self._check_window(len(prompt), max_tokens)
        body = request_body(
            model,
            prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            plain_openai=self._plain,
            with_ids=with_ids,
        )
        path = "/completions" if isinstance(prompt, list) else "/chat/completions"
        data = await self._send("POST", self._url(model, path), body)
        return read_reply(data, where=self._where, with_ids=with_ids)

    async def _prompt(self, messages: Sequence[Message]) -> Sequence[Message] | list[int]:
        if self._tokenizer is None:
            return tuple(messages)
        if sum(len(m.content) for m in messages) > LONG_PROMPT_CHARS:
            return await asyncio.to_thread(self._tokenizer.render_chat, messages)
        return self._tokenizer.render_chat(messages)

    def _check_window(self, prompt_tokens: int, max_tokens: int) -> None:
        window = self.options.window_tokens
        if window is not None and prompt_tokens + max_tokens > window:
            raise PromptTooLong(
                f"the prompt has {prompt_tokens} tokens and the reply may take {max_tokens}: "
                f"together more than the model's window of {window}. "
                "Take smaller chunks or budgets."
            )

    def _url(self, model: str, path: str) -> str:
        base = self.options.url.rstrip("/")
        if self.options.azure_api_version is None:
            return base + path
        middle = f"/openai/deployments/{model}" if model else "/openai"
        return f"{base}{middle}{path}?api-version={self.options.azure_api_version}"

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> Any:
        """Sends until there is a reply, a refusal, or no retry left."""
        if self._http is None:
            raise RuntimeError("the client is not open: use `async with Client(...)`")
        attempt = 0
        while True:
            wait_s: float | None = None
            cause: Exception | None = None
            try:
                response = await self._http.request(method, url, json=body)
            except httpx.ReadTimeout as error:
                raise RequestTimeout(
                    f"{self._where} did not reply within {self.options.reply_timeout_s:g} s"
                ) from error
            except httpx.RequestError as error:
                failure, cause = self._transport_failure(error, attempt + 1), error
            else:
                if response.status_code == 200:
                    return self._json(response)
                failure = self._status_failure(response, attempt + 1)
                wait_s = _retry_after_s(response)
            if attempt >= self.options.retries:
                raise failure from cause
            await self._sleep(self._backoff_s(attempt, wait_s))
            attempt += 1

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise RequestFailed(
                f"{self._where} answered 200 with something other than JSON: "
                f"{self._redact(response.text[:200])!r}. Does the URL end in /v1?"
            ) from error

    def _transport_failure(self, error: httpx.RequestError, attempts: int) -> HarnessError:
        text = f"{type(error).__name__}: {self._redact(str(error))}".rstrip(": ")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return ServerDied(
                f"nobody answers at {self._where} ({text}; {attempts} attempts). "
                "Is the server running, and is the URL right?"
            )
        return RequestFailed(f"the connection to {self._where} broke ({text}; {attempts} attempts)")

    def _status_failure(self, response: httpx.Response, attempts: int) -> HarnessError:
        """An error to raise when retries are used up. Raises at once what is not retried."""
        status = response.status_code
        body = self._redact(response.text)
        if status == 429 or status >= 500:
            return RequestFailed(
                f"{self._where} answered {status} in {attempts} attempts: {error_text(body)}"
            )
        raise refusal(
            status,
            body,
            where=self._where,
            key_env=self.options.key_env,
            plain_openai=self._plain,
        )

    def _backoff_s(self, attempt: int, asked_s: float | None) -> float:
        if asked_s is not None:
            return min(asked_s, self.options.backoff_max_s)
        ceiling = min(self.options.backoff_s * float(2**attempt), self.options.backoff_max_s)
        return ceiling * self._jitter.uniform(0.5, 1.0)

    def _redact(self, text: str) -> str:
        return text if self._key is None else text.replace(self._key, "[key]")

    @staticmethod
    def _to_turn(
        reply: Reply,
        messages: Sequence[Message],
        tag: str,
        prompt: Sequence[Message] | list[int],
        seconds: float,
    ) -> Turn:
        counted = len(prompt) if isinstance(prompt, list) else 0
        return Turn(
            tag=tag,
            messages=tuple(messages),
            reply=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens or counted,
            completion_tokens=reply.completion_tokens,
            seconds=seconds,
            prompt_ids=reply.prompt_ids,
            reply_ids=reply.reply_ids,
            logprobs=reply.logprobs,
        )


def _checked_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise UsageError(f"--endpoint {text!r} is no URL: {error}") from error
    if url.userinfo:
        raise UsageError("--endpoint holds a user name or password; put keys in the environment")
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"--endpoint {text!r}: expected http://HOST[:PORT]/v1 or https://...")
    return url


def _key_from(variable: str) -> str | None:
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        # Sent on, it would come back inside the HTTP library's error text.
        raise UsageError(f"the environment variable {variable} holds characters no key can have")
    return key or None


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date (RFC 9110, 10.2.3)."""
    value = response.headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
