"""One async client for every OpenAI-compatible server: our pool, vLLM, OpenAI, Azure.

What may pass is tried again (serving/api/sender.py): broken connections, 429, 5xx and replies
that are none, each request boundedly, with exponential backoff and jitter. A reply that does not
come in time is not asked for again: the server may still be at work on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from yarl import URL

from core.errors import PromptTooLong, RequestFailed, UsageError
from core.rollout import off_loop
from core.tokens import Tokenizer
from core.types import GREEDY, Message, Sampling, Turn
from serving.api.connection import Request, allow_files, checked_url
from serving.api.options import ClientOptions
from serving.api.outage import Patience
from serving.api.sender import Sender
from serving.api.wire import (
    Asked,
    Dialect,
    Offered,
    Reply,
    read_models,
    read_reply,
    request_body,
    visible,
)
from serving.limits.gate import Gate, weight_of

__all__ = ["Client", "ClientOptions"]

LONG_PROMPT_CHARS = 8_000
"""Prompts of which more than this must be encoded are so in a thread: it takes milliseconds, and
the event loop must keep turning. What messages know of themselves does not count."""


class Client:
    """Asks one server for turns. An async context manager with one owner: it owns its
    connections, and closes them on the way out.

        async with Client(ClientOptions("http://127.0.0.1:8000/v1"), tokenizer) as client:
            turn = await client.turn("m", messages, max_tokens=128, sampling=GREEDY, tag="a")

    With a tokenizer, prompts travel as token ids. `patience`: how long to wait for a server
    that is away; a pool of our own gives its `check` as `Patience.alive`. `gate`: what holds the
    requests to an endpoint's limits and to a budget.
    """

    def __init__(
        self,
        options: ClientOptions,
        tokenizer: Tokenizer | None = None,
        patience: Patience | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.options = options
        self._gate = gate
        self._tokenizer = tokenizer
        self._patience = patience or Patience()
        self._sender: Sender | None = None
        self._urls: dict[tuple[str, str], URL] = {}
        self._url_where = checked_url(options.url).with_query(None).with_fragment(None)
        self.where = str(self._url_where)

    def __repr__(self) -> str:
        return f"Client({self.where})"

    async def __aenter__(self) -> Self:
        if self._tokenizer is not None:
            # A tokenizer makes its parsers at the first call, in seconds: not while others wait.
            await off_loop(self._tokenizer.render_chat, [Message("user", "")])
        allow_files(self.options.connections)
        self._sender = Sender(self._url_where, self.options, self._patience, self._gate)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sender is not None:
            await self._sender.close()
            self._sender = None

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
        with_ids: bool = False,
        whole: bool = False,
    ) -> Turn:
        """One request, one reply. `with_ids` asks for token ids and logprobs too (training);
        `whole` for a reply that does not end before `max_tokens` (measuring; vLLM only).

        Raises:
            PromptTooLong: prompt and reply budget exceed the window.
            RequestRejected: the server refused (4xx).
            RequestTimeout: no reply within `reply_timeout_s`.
            BadReply: what came is no reply, retries included.
            ServerDied: the server ended, or is away for longer than `patience`.
            BudgetSpent: the gate's budget has no room for the request.
            RequestFailed: any other failure that outlasted the retries.
        """
        started = time.perf_counter()
        prompt = await self._prompt(messages)
        counted = len(prompt) if isinstance(prompt, list) else None
        asked = Asked(max_tokens, counted, with_ids, whole)
        reply, usd = await self._reply(model, prompt, asked, sampling)
        return Turn(
            tag=tag,
            messages=tuple(messages),
            reply=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            seconds=time.perf_counter() - started,
            reasoning=reply.reasoning,
            usd=usd,
            prompt_ids=reply.prompt_ids,
            reply_ids=reply.reply_ids,
            logprobs=reply.logprobs,
        )

    async def complete(
        self, model: str, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling
    ) -> Reply:
        """Token ids in, token ids and logprobs out: nothing is tokenized on the way (training).

        Raises as `turn` does, and RequestFailed also where the server read other ids.
        """
        asked = Asked(max_tokens, len(prompt_ids), with_ids=True)
        reply, _ = await self._reply(model, list(prompt_ids), asked, sampling)
        if reply.prompt_ids != tuple(prompt_ids):
            raise RequestFailed(f"{self.where} read other prompt ids than it was sent")
        return reply

    async def probe(
        self,
        model: str,
        content: str,
        asked: Asked,
        sampling: Sampling,
        dialect: Dialect | None = None,
    ) -> Reply:
        """One message of a user to the server's own chat template, in another dialect than the
        client's where one is given. Raises as `turn` does."""
        message = (Message("user", content),)
        return (await self._reply(model, message, asked, sampling, dialect))[0]

    async def offered(self) -> list[Offered]:
        """The models that the server offers; Azure lists those of the resource, not its
        deployments, and so nothing. Raises as `turn` does."""
        if self.options.azure_api_version is not None:
            return []
        request = Request("GET", self._url("", "/models"))
        offered, _ = await self._open.send(
            request, lambda: request, lambda body: read_models(body, where=self.where), None
        )
        return offered

    async def models(self) -> list[str]:
        """Names of the models that the server offers. Raises as `turn` does."""
        return [one.name for one in await self.offered()]

    async def check(self, model: str) -> None:
        """Fails early and clearly where `model` cannot be asked here.

        Raises:
            UsageError: the server offers other models only.
            HarnessError: the server cannot be reached, as `turn` raises it.
        """
        if self.options.azure_api_version is not None:
            return
        offered = await self.models()
        if model not in offered:
            names = self._open.without_key(visible(", ".join(offered)[:2000]))
            raise UsageError(
                f"{self.where} does not serve {model!r}; it serves: {names}. "
                "Name one of these with --models."
            )

    @property
    def _open(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("the client is not open: use `async with Client(...)`")
        return self._sender

    # -- one turn ----------------------------------------------------------------------------

    async def _prompt(self, messages: Sequence[Message]) -> Sequence[Message] | list[int]:
        if self._tokenizer is None:
            return tuple(messages)
        known = sum(len(part.text) for m in messages for part in m.known)
        if sum(len(m.content) for m in messages) - known > LONG_PROMPT_CHARS:
            return await off_loop(self._tokenizer.render_chat, messages)
        return self._tokenizer.render_chat(messages)

    async def _reply(
        self,
        model: str,
        prompt: Sequence[Message] | list[int],
        asked: Asked,
        sampling: Sampling,
        dialect: Dialect | None = None,
    ) -> tuple[Reply, float]:
        """A reply, and what it cost in US dollars."""
        if isinstance(prompt, list):
            self._check_window(len(prompt), asked.max_tokens)

        def probe() -> Request:
            start = prompt[:1] if isinstance(prompt, list) else [Message("user", "1")]
            return self._request(model, start, Asked(max_tokens=1), GREEDY)

        def read(body: bytes) -> Reply:
            reply = read_reply(body, asked, where=self.where)
            text = self._open.without_key(reply.text)
            return reply if text is reply.text else replace(reply, text=text)

        request = self._request(model, prompt, asked, sampling, dialect)
        weight = weight_of(len(request.body or b""), asked.prompt_tokens, asked.max_tokens)
        return await self._open.send(request, probe, read, weight)

    def _request(
        self,
        model: str,
        prompt: Sequence[Message] | list[int],
        asked: Asked,
        sampling: Sampling,
        dialect: Dialect | None = None,
    ) -> Request:
        spoken = dialect or self.options.dialect
        body = request_body(model, prompt, asked, sampling, dialect=spoken)
        path = "/completions" if isinstance(prompt, list) else "/chat/completions"
        return Request("POST", self._url(model, path), body)

    def _check_window(self, prompt_tokens: int, max_tokens: int) -> None:
        window = self.options.window_tokens
        if window is not None and prompt_tokens + max_tokens > window:
            raise PromptTooLong(
                f"the prompt has {prompt_tokens} tokens and the reply may take {max_tokens}: "
                f"together more than the model's window of {window}. "
                "Take smaller chunks or budgets."
            )

    def _url(self, model: str, path: str) -> URL:
        if (model, path) not in self._urls:
            self._urls[model, path] = URL(self.options.address(model, path))
        return self._urls[model, path]
