"""One async client for every OpenAI-compatible server: our pool, vLLM, OpenAI, Azure.

What may pass is tried again: broken connections, 429, 5xx and replies that are none, each
request boundedly, with exponential backoff and jitter. While the server as a whole does not
answer, all requests wait together (serving/api/outage.py). A reply that does not come in time is
not asked for again: the server may still be at work on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from yarl import URL

from core.errors import (
    BadReply,
    HarnessError,
    PromptTooLong,
    RequestFailed,
    RequestTimeout,
    ServerDied,
    UsageError,
)
from core.tokens import Tokenizer
from core.types import GREEDY, Message, Sampling, Turn
from serving.api.connection import (
    Connection,
    Request,
    Response,
    Timeouts,
    allow_files,
    checked_url,
    key_from,
)
from serving.api.options import ClientOptions
from serving.api.outage import Outage, Patience, Trouble
from serving.api.wire import (
    Asked,
    Dialect,
    Offered,
    Reply,
    error_text,
    read_models,
    read_reply,
    refusal,
    request_body,
    visible,
)
from serving.limits.gate import Gate, Passage, Weight, weight_of
from serving.limits.headers import retry_after_s

__all__ = ["Client", "ClientOptions"]

T = TypeVar("T")

LONG_PROMPT_CHARS = 8_000
"""Prompts of which more than this must be encoded are so in a thread: it takes milliseconds, and
the event loop must keep turning. What messages know of themselves does not count."""

PROBE_S = 60.0
"""A probe of one token that takes longer was not answered."""

ENGINE_DEAD = "EngineCore encountered an issue"
"""What vLLM says of an engine that died. In a pool the other replicas still answer a probe, and the
dead one, which fails at once and so has the least to do, is given retries until it is replaced."""

MOST_WAITS = 50
"""Outages that one request sits through: one that fails whenever the server is back must end."""


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
        self._connection: Connection | None = None
        self._has_answered = False
        self._urls: dict[tuple[str, str], URL] = {}
        self._url_where = checked_url(options.url).with_query(None).with_fragment(None)
        self.where = str(self._url_where)

    def __repr__(self) -> str:
        return f"Client({self.where})"

    async def __aenter__(self) -> Self:
        options = self.options
        if self._tokenizer is not None:
            # A tokenizer makes its parsers at the first call, in seconds: not while others wait.
            await asyncio.to_thread(self._tokenizer.render_chat, [Message("user", "")])
        allow_files(options.connections)
        self._room = asyncio.Semaphore(options.connections)
        self._outage = Outage(self.where, self._patience)
        self._connection = Connection(
            self._url_where,
            key_from(options.key_env),
            Timeouts(options.connect_timeout_s, options.silence_timeout_s),
            azure=options.azure_api_version is not None,
            own=self._patience.alive is not None,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._outage.close()
            await self._connection.close()
            self._connection = None

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
        offered, _ = await self._send(
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

    # -- one turn ----------------------------------------------------------------------------

    async def _prompt(self, messages: Sequence[Message]) -> Sequence[Message] | list[int]:
        if self._tokenizer is None:
            return tuple(messages)
        known = sum(len(part.text) for m in messages for part in m.known)
        if sum(len(m.content) for m in messages) - known > LONG_PROMPT_CHARS:
            return await asyncio.to_thread(self._tokenizer.render_chat, messages)
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
        return await self._send(request, probe, read, weight)

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
            self._urls[model, path] = URL(self._address(model, path))
        return self._urls[model, path]

    def _address(self, model: str, path: str) -> str:
        base = self.options.url.rstrip("/")
        if self.options.azure_api_version is None:
            return base + path
        middle = f"/openai/deployments/{model}" if model else "/openai"
        return f"{base}{middle}{path}?api-version={self.options.azure_api_version}"

    # -- one request, until there is an answer ------------------------------------------------

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("the client is not open: use `async with Client(...)`")
        return self._connection

    async def _send(
        self,
        request: Request,
        probe: Callable[[], Request],
        read: Callable[[bytes], T],
        weight: Weight | None,
    ) -> tuple[T, float]:
        """Sends until there is a reply, a refusal, or no retry and no patience left. Returns what
        was read, and what all tries cost in US dollars."""
        connection = self._open
        tries = waits = 0
        usd = 0.0
        while True:
            await self._outage.over()
            probes = self._outage.failed_probes
            passage = Passage(self._gate, weight)
            try:
                async with self._room, passage:
                    answer = read(await self._once(request, self.options.reply_timeout_s, passage))
                    if isinstance(answer, Reply):
                        passage.used(answer.prompt_tokens, answer.completion_tokens)
            except BadReply as error:
                trouble = Trouble(BadReply(connection.without_key(str(error))))
            except Trouble as met:
                trouble = met
                if self._is_patient(trouble):
                    self._outage.failed(trouble, partial(self._probe, probe))
            except RequestTimeout as error:
                self._outage.failed(Trouble(error), partial(self._probe, probe))
                raise
            else:
                self._has_answered = True
                self._outage.answered()
                return answer, usd + passage.usd
            usd += passage.usd
            await self._patience.sleep(self._patience.pause_s(tries + waits, trouble.after_s))
            await self._outage.over()
            if trouble.waits or self._outage.failed_probes > probes:
                waits += 1
            else:
                tries += 1
            if tries > self.options.retries or waits > MOST_WAITS:
                raise self._given_up(trouble.error, tries + waits) from trouble

    def _is_patient(self, trouble: Trouble) -> bool:
        """Whether to wait. Where nobody ever answered, the address is likely to be wrong."""
        nobody = isinstance(trouble.error, ServerDied)
        return self._has_answered or self._patience.alive is not None or not nobody

    def _given_up(self, error: HarnessError, tries: int) -> HarnessError:
        # A server that answers others is not gone.
        kind = RequestFailed if self._has_answered and error.fatal else type(error)
        return kind(f"{error} ({tries} tries)")

    async def _probe(self, request: Callable[[], Request]) -> None:
        """Raises Trouble where the server does not answer; a refusal is an answer."""
        try:
            asked = request()
            weight = weight_of(len(asked.body or b""), None, 1)
            async with Passage(self._gate, weight) as passage:
                await self._once(asked, min(PROBE_S, self.options.reply_timeout_s), passage)
        except RequestTimeout as error:
            raise Trouble(error) from error
        except HarnessError:
            return

    async def _once(self, request: Request, timeout_s: float, passage: Passage) -> bytes:
        """The body of a 200.

        Raises:
            Trouble: what may pass.
            HarnessError: what may not: a refusal, or no reply in time.
        """
        try:
            response = await self._open.send(request, timeout_s)
        except Trouble as trouble:
            if isinstance(trouble.error, ServerDied):
                passage.nothing()
            raise
        passage.came(response.headers, refused=response.status != 200)
        if response.status == 200:
            return response.body
        raise self._status_failure(self._open, response)

    def _status_failure(self, connection: Connection, response: Response) -> Trouble | HarnessError:
        """The error for a status that is not 200: Trouble where it may pass."""
        status = response.status
        text = response.body.decode("utf-8", errors="replace")
        if status == 429 or status >= 500:
            said = f"{self.where} answered {status}: {connection.without_key(error_text(text))}"
            after_s = retry_after_s(response.headers)
            waits = status == 429 or ENGINE_DEAD in text
            return Trouble(RequestFailed(said), after_s, waits=waits)
        refused = refusal(
            status,
            text,
            where=self.where,
            key_env=self.options.key_env,
            dialect=self.options.dialect,
        )
        return type(refused)(connection.without_key(str(refused)))
