"""Where every request to an endpoint passes: rates first come first served, then money."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from serving.limits.budget import Budget, Price
from serving.limits.headers import Left
from serving.limits.minute import Minute, Taken

FREE = Price(input=0, output=0)

BYTES_PER_TOKEN = 3.5
"""English text in current vocabularies: a prompt's weight until the server has counted it."""
TEMPLATE_TOKENS = 512
"""More than a server's chat template writes around messages."""

LOOK_EVERY_S = 1.0
"""How long a wait goes on without looking: replies shorter than their budget give room back."""

SOON_S = 1e-6
"""A wait that is a rounding error."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a request weighs, in tokens. `prompt`: about; `most_prompt`: at most, since a byte is a
    token at most; `reply`: as promised by max_tokens."""

    prompt: int
    most_prompt: int
    reply: int


def weight_of(body_bytes: int, prompt_tokens: int | None, reply_tokens: int) -> Weight:
    """The weight of a request of so many bytes; `prompt_tokens` where we counted them."""
    about = prompt_tokens or int(body_bytes / BYTES_PER_TOKEN)
    # Escapes in JSON only add bytes.
    return Weight(about, prompt_tokens or body_bytes + TEMPLATE_TOKENS, reply_tokens)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a request took of the rates. `marks`: see `Left.take`, of requests and of tokens."""

    tokens: Taken | None
    marks: tuple[float, float]


class Rates:
    """Requests and tokens a minute of one server, for all of its clients: by limits of the
    user's, and by what the server's own headers say is left."""

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._requests = Minute(requests_per_minute, clock) if requests_per_minute else None
        self._tokens = Minute(tokens_per_minute, clock) if tokens_per_minute else None
        self._left = Left("requests", clock), Left("tokens", clock)
        self._sleep = sleep
        self.in_order = asyncio.Lock()

    async def enter(self, tokens: int) -> Entry:
        """Waits until a request of so many tokens may be sent."""
        while (wait_s := self._wait_s(tokens)) > SOON_S:
            await self._sleep(min(wait_s, LOOK_EVERY_S))
        if self._requests:
            self._requests.take(1)
        requests, of_tokens = self._left
        return Entry(
            self._tokens.take(tokens) if self._tokens else None,
            (requests.take(1), of_tokens.take(tokens)),
        )

    def settle(self, entry: Entry, tokens: int) -> None:
        """The request turned out to have so many tokens."""
        if self._tokens and entry.tokens:
            self._tokens.settle(entry.tokens, tokens)

    def read(self, headers: Mapping[str, str], entry: Entry) -> None:
        """Takes in what the headers of a request's reply say."""
        for left, mark in zip(self._left, entry.marks, strict=True):
            left.read(headers, mark)

    def _wait_s(self, tokens: int) -> float:
        waits = [left.wait_s(amount) for left, amount in zip(self._left, (1, tokens), strict=True)]
        if self._requests:
            waits.append(self._requests.wait_s(1))
        if self._tokens:
            waits.append(self._tokens.wait_s(tokens))
        return max(waits)


@dataclass(frozen=True, slots=True)
class Gate:
    """What a client's requests pass: the server's rates, and a budget at the model's price."""

    rates: Rates
    budget: Budget | None = None
    price: Price = FREE


class Passage:
    """One request through a gate: a context manager to be inside while it is asked. `usd`: what
    it cost, known behind the context. Without a gate or a weight it costs and waits nothing."""

    def __init__(self, gate: Gate | None, weight: Weight | None) -> None:
        self.usd = 0.0
        self._gate = gate if weight else None
        self._weight = weight or Weight(0, 0, 0)
        self._entry = Entry(None, (0.0, 0.0))
        self._held_usd = 0.0
        self._cost_usd: float | None = None

    async def __aenter__(self) -> Self:
        if self._gate is None:
            return self
        weight, budget = self._weight, self._gate.budget
        async with self._gate.rates.in_order:
            if budget is not None:
                most = budget.most_tokens(weight.reply)
                self._held_usd = self._gate.price.usd(weight.most_prompt, most)
                await budget.hold(self._held_usd)
            try:
                self._entry = await self._gate.rates.enter(weight.prompt + weight.reply)
            except BaseException:
                if budget is not None:
                    budget.settle(self._held_usd, 0.0)
                raise
        return self

    def came(self, headers: Mapping[str, str], *, refused: bool) -> None:
        """A reply came. One that refuses costs nothing."""
        if self._gate is None:
            return
        self._gate.rates.read(headers, self._entry)
        if refused:
            self.nothing()

    def nothing(self) -> None:
        """The request was not answered, and took nobody's time."""
        self._cost_usd = 0.0

    def used(self, prompt_tokens: int, reply_tokens: int) -> None:
        """The server counted so many tokens; 0 of the prompt's: it counted none."""
        if self._gate is None or not prompt_tokens:
            return
        self._gate.rates.settle(self._entry, prompt_tokens + reply_tokens)
        self._cost_usd = self._gate.price.usd(prompt_tokens, reply_tokens)
        if self._gate.budget is not None:
            self._gate.budget.saw(self._weight.reply, reply_tokens)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._gate is None or self._gate.budget is None:
            return
        self.usd = self._held_usd if self._cost_usd is None else self._cost_usd
        self._gate.budget.settle(self._held_usd, self.usd)
