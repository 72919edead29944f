"""Money: prices of the user's own, and a budget that is never passed.

A request holds the most that it can cost before it is sent, and what it did cost is counted when
it is answered. So what is spent and what is held are together within the budget at every moment.
A request whose end is not known (no reply in time, a broken connection, a reply that is none)
counts with all that it held.

`prices.toml`, in US dollars for a million tokens, as the endpoint's own page says:

    [models."gpt-4.1-mini"]
    input = 0.40
    output = 1.60
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import BudgetSpent, DataMissing, UsageError
from core.names import explained, not_known

CAUTION = 4.0
"""How much longer than promised a reply is taken to be: some servers ignore max_tokens. The
longest overrun that was seen multiplies it."""

MEGA = 1e6

LEAST_SHOWN_USD = 5e-5
"""What rounds to 0.0001, the least amount that is written."""


class Price(BaseModel):
    """US dollars for a million tokens. Reasoning is output, cached prompts count as input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def usd(self, prompt_tokens: float, reply_tokens: float) -> float:
        """What a request costs."""
        return (prompt_tokens * self.input + reply_tokens * self.output) / MEGA


class _Prices(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, Price]


def read_prices(path: Path) -> Mapping[str, Price]:
    """Prices by the name that a model is served as.

    Raises:
        DataMissing: there is no such file; the text shows one.
        UsageError: it is not one; names the field.
    """
    try:
        return _Prices.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).models
    except OSError as error:
        raise DataMissing(
            f"prices {path} cannot be read ({error.strerror}). Write there what the endpoint "
            'takes, in USD for a million tokens:\n[models."NAME"]\ninput = 0.40\noutput = 1.60'
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"prices {path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise UsageError(f"prices {path}: {explained(error)}") from error


def price_of(model: str, prices: Mapping[str, Price], path: Path) -> Price:
    """The price of a model. Raises UsageError where the file has none."""
    if model not in prices:
        raise UsageError(f"prices {path}: model {not_known(model, prices)}")
    return prices[model]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has cost in US dollars, of what it may cost (None: there is no limit)."""

    usd: float
    budget_usd: float | None = None

    def in_words(self, kept_usd: float) -> str:
        """`1.2345 USD of a budget of 20 USD`, and how much of it went for other things than the
        turns that the run holds, which cost `kept_usd`."""
        of = "" if self.budget_usd is None else f" of a budget of {self.budget_usd:g} USD"
        rest = self.usd - kept_usd
        other = f", {rest:.4f} of it for checks and for requests that brought no reply"
        return f"{self.usd:.4f} USD{of}{other if rest > LEAST_SHOWN_USD else ''}"


class Budget:
    """What a run may spend and has spent, in US dollars. `limit_usd` None: spending is only
    counted."""

    def __init__(self, limit_usd: float | None) -> None:
        self.limit_usd = limit_usd
        self.spent_usd = 0.0
        self.held_usd = 0.0
        self._held = 0
        self._longest = 1.0
        self._keep: Callable[[Spent], None] = lambda spent: None
        self._changed = asyncio.Event()

    def go_on(self, spent_usd: float, keep: Callable[[Spent], None]) -> None:
        """Begins with what a run has cost so far. `keep` is told what is spent and held together,
        at every change: a run that is killed goes on from what it can have cost at most."""
        self.spent_usd, self._keep = spent_usd, keep
        self._tell()

    @property
    def spent(self) -> Spent:
        """What has been spent, without what is held."""
        return Spent(self.spent_usd, self.limit_usd)

    def most_tokens(self, promised: int) -> float:
        """How long a reply is taken to get at most."""
        return promised * CAUTION * self._longest

    def saw(self, promised: int, reply_tokens: int) -> None:
        """A reply had so many tokens of those promised."""
        self._longest = max(self._longest, reply_tokens / promised)

    async def hold(self, most_usd: float) -> None:
        """Waits until what is in flight leaves room for a request that costs so much at most.

        Raises:
            BudgetSpent: nothing is in flight, and there is no room.
        """
        while self.limit_usd is not None and (
            self.spent_usd + self.held_usd + most_usd > self.limit_usd
        ):
            if not self._held:
                raise BudgetSpent(
                    f"the budget of {self.limit_usd:g} USD has no room for the next request: "
                    f"{self.spent_usd:.4f} USD are spent, and it may cost {most_usd:.4f} USD. "
                    "Give the same command with a larger --budget to go on."
                )
            self._changed.clear()
            await self._changed.wait()
        self.held_usd += most_usd
        self._held += 1
        self._tell()

    def settle(self, held_usd: float, cost_usd: float) -> None:
        """A request that held so much has cost so much."""
        self._held -= 1
        self.held_usd = self.held_usd - held_usd if self._held else 0.0
        self.spent_usd += cost_usd
        self._tell()
        self._changed.set()

    def _tell(self) -> None:
        self._keep(Spent(self.spent_usd + self.held_usd, self.limit_usd))
