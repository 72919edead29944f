"""Checks that ask the server: does it do what a sweep asks of it?

A probe asks as the sweep will: the same client, dialect, limits and budget. Its replies are short,
and one of its prompts is as long as the longest of the sweep.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.doctor import prompt_probes, reply_probes
from benchmarks.doctor.findings import Finding
from benchmarks.doctor.server import Server
from core.errors import BadReply, PromptTooLong, RequestRejected


@dataclass(frozen=True, slots=True)
class Probe:
    """A check that asks. `requests`: how many at most; `short`: whether every sweep begins with
    it."""

    name: str
    requests: int
    run: Callable[[Server], AsyncIterator[Finding]]
    short: bool = True


PROBES: Sequence[Probe] = (
    Probe("model", 2, prompt_probes.model),
    Probe("tokens", 2, prompt_probes.tokens),
    Probe("cut", 1, prompt_probes.cut),
    Probe("max_tokens", 1, reply_probes.max_tokens),
    Probe(
        "temperature",
        reply_probes.HOT_TIMES + reply_probes.GREEDY_TIMES - 1,
        reply_probes.temperature,
    ),
    Probe("top_p", reply_probes.HOT_TIMES, reply_probes.top_p, short=False),
    Probe("repetition_penalty", 4, reply_probes.repetition_penalty),
    Probe("seed", 2, reply_probes.seed, short=False),
)


def probes(*, short: bool) -> list[Probe]:
    """Those to run; a sweep begins with the short ones."""
    return [probe for probe in PROBES if probe.short or not short]


def requests(*, short: bool) -> int:
    """How many requests they take at most."""
    return sum(probe.requests for probe in probes(short=short))


def said_first(longest: Mapping[str, int], *, short: bool) -> str:
    """What the probes of models will ask, before they do: `longest` turns in tokens, by model."""
    count = len(longest) * requests(short=short)
    return (
        f"at most {count} requests see whether the server does as it is asked, all short but "
        f"{len(longest)} of up to {max(longest.values()):,} tokens"
    )


async def examine(server: Server, *, short: bool) -> list[Finding]:
    """All that the probes find. Nothing more is asked where the model itself is not there.

    Raises:
        HarnessError: the server cannot be reached.
    """
    first, *rest = probes(short=short)
    found = await _run(first, server)
    if not any(finding.check in ("model", "request") for finding in found):
        # One after the other: greedy replies are compared, and batches change them.
        for probe in rest:
            found += await _run(probe, server)
    return [replace(finding, model=server.model) for finding in found]


async def _run(probe: Probe, server: Server) -> list[Finding]:
    try:
        return [finding async for finding in probe.run(server)]
    except (RequestRejected, PromptTooLong, BadReply) as error:
        change = "Change the flags or the server until a request of the sweep's form is answered"
        return [Finding("request", "refused", f"{probe.name}: {error}", change)]
