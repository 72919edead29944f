"""One request until there is an answer: what may pass is tried again, boundedly, and while the
server as a whole does not answer, all requests wait together (serving/api/outage.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from yarl import URL

from core.errors import BadReply, HarnessError, RequestFailed, RequestTimeout, ServerDied
from serving.api.connection import Connection, Request, Response, Timeouts, key_from
from serving.api.options import ClientOptions
from serving.api.outage import Outage, Patience, Trouble
from serving.api.wire import Reply, error_text, refusal
from serving.limits.gate import Gate, Passage, Weight, weight_of
from serving.limits.headers import retry_after_s

T = TypeVar("T")

PROBE_S = 60.0
"""A probe of one token that takes longer was not answered."""

ENGINE_DEAD = "EngineCore encountered an issue"
"""What vLLM says of an engine that died. In a pool the other replicas still answer a probe, and the
dead one, which fails at once and so has the least to do, is given retries until it is replaced."""

MOST_WAITS = 50
"""Outages that one request sits through: one that fails whenever the server is back must end."""


class Sender:
    """Sends requests to the server at `where`, over connections of its own, as many at once as the
    options say; `gate` holds them to an endpoint's limits and to a budget."""

    def __init__(
        self, where: URL, options: ClientOptions, patience: Patience, gate: Gate | None
    ) -> None:
        self._where = str(where)
        self._options = options
        self._patience = patience
        self._gate = gate
        self._room = asyncio.Semaphore(options.connections)
        self._outage = Outage(self._where, patience)
        self._has_answered = False
        self._connection = Connection(
            where,
            key_from(options.key_env),
            Timeouts(options.connect_timeout_s, options.silence_timeout_s),
            azure=options.azure_api_version is not None,
            own=patience.alive is not None,
        )

    async def close(self) -> None:
        """Stops asking, and closes all connections."""
        await self._outage.close()
        await self._connection.close()

    def without_key(self, text: str) -> str:
        """A text that came from the server, to be told or kept."""
        return self._connection.without_key(text)

    async def send(
        self,
        request: Request,
        probe: Callable[[], Request],
        read: Callable[[bytes], T],
        weight: Weight | None,
    ) -> tuple[T, float]:
        """Sends until there is a reply, a refusal, or no retry and no patience left. Returns what
        was read, and what all tries cost in US dollars."""
        tries = waits = 0
        usd = 0.0
        while True:
            await self._outage.over()
            probes = self._outage.failed_probes
            passage = Passage(self._gate, weight)
            try:
                async with self._room, passage:
                    answer = read(await self._once(request, self._options.reply_timeout_s, passage))
                    if isinstance(answer, Reply):
                        passage.used(answer.prompt_tokens, answer.completion_tokens)
            except BadReply as error:
                trouble = Trouble(BadReply(self.without_key(str(error))))
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
            if tries > self._options.retries or waits > MOST_WAITS:
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
                await self._once(asked, min(PROBE_S, self._options.reply_timeout_s), passage)
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
            response = await self._connection.send(request, timeout_s)
        except Trouble as trouble:
            if isinstance(trouble.error, ServerDied):
                passage.nothing()
            raise
        passage.came(response.headers, refused=response.status != 200)
        if response.status == 200:
            return response.body
        raise self._status_failure(response)

    def _status_failure(self, response: Response) -> Trouble | HarnessError:
        """The error for a status that is not 200: Trouble where it may pass."""
        status = response.status
        text = response.body.decode("utf-8", errors="replace")
        if status == 429 or status >= 500:
            said = f"{self._where} answered {status}: {self.without_key(error_text(text))}"
            after_s = retry_after_s(response.headers)
            waits = status == 429 or ENGINE_DEAD in text
            return Trouble(RequestFailed(said), after_s, waits=waits)
        refused = refusal(
            status,
            text,
            where=self._where,
            key_env=self._options.key_env,
            dialect=self._options.dialect,
        )
        return type(refused)(self.without_key(str(refused)))
