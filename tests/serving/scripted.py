"""A server that misbehaves to order, on a real socket, and time that passes at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from core.types import GREEDY, Message, Sampling, Turn
from serving.api.outage import Patience
from serving.client import Client, ClientOptions

ASK = [Message("user", "Where is it?")]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
COMPLETION = {"choices": [{"text": "Here.", "finish_reason": "stop"}], "usage": USAGE}
CHAT = {"choices": [{"message": {"content": "Here."}, "finish_reason": "length"}], "usage": USAGE}


class Time:
    """Seconds that pass when somebody sleeps, and only then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits_s: list[float] = []
        self._alarms: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        wake = self.now + seconds
        # All sleepers come here before the first of them moves the clock.
        for _ in range(20):
            await asyncio.sleep(0)
        self.now = max(self.now, wake)
        for at, alarm in self._alarms:
            if self.now >= at:
                alarm.set()

    async def reaches(self, at: float) -> None:
        alarm = asyncio.Event()
        self._alarms.append((at, alarm))
        await alarm.wait()

    def clock(self) -> float:
        return self.now

    def patience(self, **rest: Any) -> Patience:
        return Patience(sleep=self.sleep, clock=self.clock, **rest)


@dataclass(frozen=True)
class Answer:
    """`cut`: bytes short of the length that the header tells. `hang`: nothing more comes after
    the body. `drop`: the connection is closed without an answer."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    hang: bool = False
    drop: bool = False


def reply(data: object, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(json.dumps(data).encode(), status, named)


def error(status: int, message: str, **headers: str) -> Answer:
    return reply({"error": {"message": message}}, status, **headers)


def says(text: str) -> Answer:
    return reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


@dataclass(frozen=True)
class Asked:
    path: str
    query: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def is_probe(self) -> bool:
        return self.body.get("max_tokens") == 1


Answers = Answer | Callable[[Asked], Answer | Awaitable[Answer]]


class ScriptedServer:
    """Gives its answers in turn, the last one for ever; a probe is answered by `probe`."""

    def __init__(self, *answers: Answers, probe: Answers | None = None) -> None:
        self.answers = list(answers)
        self.probe = probe
        self.asked: list[Asked] = []
        self.probes: list[Asked] = []
        self.port = 0
        self.was_asked = asyncio.Event()
        self.was_probed = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def body(self) -> dict[str, Any]:
        return self.asked[-1].body

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedServer]:
        server = web.Server(self._handle)
        runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self._stopped.clear()
        try:
            yield self
        finally:
            self._stopped.set()
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        data = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.path, request.query_string, headers, json.loads(data or b"{}"))
        if asked.is_probe and self.probe is not None:
            self.probes.append(asked)
            self.was_probed.set()
            answer: Any = self.probe
        else:
            answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
            self.asked.append(asked)
            self.was_asked.set()
        if callable(answer):
            answer = answer(asked)
            if isinstance(answer, Awaitable):
                answer = await answer
        return await self._send(request, answer)

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(answer.body) + answer.cut
        if answer.drop or (answer.hang and not answer.body):
            if answer.hang:
                await self._stopped.wait()
            transport.close()
            return response
        await response.prepare(request)
        await response.write(answer.body)
        if answer.hang:
            await self._stopped.wait()
        if answer.cut or answer.hang:
            transport.close()
        return response

    def client(
        self, tokenizer: Any = None, patience: Patience | None = None, **options: Any
    ) -> Client:
        patience = patience or Time().patience()
        options = {"url": self.url, "retries": 3} | options
        return Client(ClientOptions(**options), tokenizer, patience)

    async def turn(
        self,
        tokenizer: Any = None,
        patience: Patience | None = None,
        *,
        sampling: Sampling = GREEDY,
        with_ids: bool = False,
        **options: Any,
    ) -> Turn:
        """One turn by a client of its own, while the server runs."""
        async with self.running(), self.client(tokenizer, patience, **options) as client:
            return await ask(client, sampling=sampling, with_ids=with_ids)


async def ask(client: Client, *, sampling: Sampling = GREEDY, with_ids: bool = False) -> Turn:
    return await client.turn(
        "pocket", ASK, max_tokens=7, sampling=sampling, tag="memory", with_ids=with_ids
    )
