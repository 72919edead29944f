"""Rates out of timed rounds of turns, on a machine that others may use as well.

Two rounds of the same kind of turns, one after the other, and again:

    read    replies of one token: the time is the prompts'
    write   replies that take their whole budget: what is left is the replies'

Whatever else a machine does only adds to a round's time, so of several rounds the fastest counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.estimate.rates import Rate
from core.errors import ServerDied

ROUNDS = 3
"""Of each kind, at least."""

MOST_ROUNDS = 10
"""Of each kind, where the replies' part of the time is still lost in the noise."""

LEAST_PART = 0.05
"""Of a write round's time: a smaller part for the replies is noise, not a measurement."""


@dataclass(frozen=True, slots=True)
class Round:
    """So many turns at once, in seconds, and the tokens of all of them."""

    seconds: float
    turns: int
    prompt_tokens: int
    reply_tokens: int


Play = Callable[[int, int], Awaitable[Round]]
"""(turns, tokens of each reply) -> a round with the level's number of turns in flight."""


async def measured(play: Play, in_flight: int, turns: int, reply_tokens: int) -> Rate:
    """The rate with so many turns in flight, from rounds of `turns` turns each.

    Raises:
        ServerDied: after MOST_ROUNDS rounds the replies take no time that can be told.
    """
    for tokens in (1, reply_tokens):  # what is compiled and allocated once, for each shape
        await play(in_flight, tokens)
    reads: list[Round] = []
    writes: list[Round] = []
    while len(reads) < MOST_ROUNDS:
        reads.append(await play(turns, 1))
        writes.append(await play(turns, reply_tokens))
        rate = rate_of(in_flight, reads, writes) if len(reads) >= ROUNDS else None
        if rate is not None:
            return rate
    raise ServerDied(
        f"with {in_flight} in flight {turns} turns took {_fastest(writes).seconds:.3f} s with "
        f"replies of {reply_tokens} tokens and {_fastest(reads).seconds:.3f} s with replies of "
        f"one, the fastest of {MOST_ROUNDS} rounds each: too near to tell the replies' part. "
        "Measure again with more --turns, or while nothing else uses the machine."
    )


def rate_of(in_flight: int, reads: Sequence[Round], writes: Sequence[Round]) -> Rate | None:
    """The rate by the fastest round of each kind; None where the replies' part is no more than
    LEAST_PART of the time. A reply's first token comes with its prompt's reading."""
    read, write = _fastest(reads), _fastest(writes)
    reading_s = write.prompt_tokens * read.seconds / read.prompt_tokens
    writing_s = write.seconds - reading_s
    if writing_s <= LEAST_PART * write.seconds:
        return None
    return Rate(
        in_flight=in_flight,
        prompt_tokens_per_s=round(read.prompt_tokens / read.seconds, 1),
        reply_tokens_per_s=round((write.reply_tokens - write.turns) / writing_s, 1),
    )


def _fastest(rounds: Sequence[Round]) -> Round:
    return min(rounds, key=lambda one: one.seconds / one.prompt_tokens)
