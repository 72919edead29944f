"""The doctor: all checks of a plan, before a sweep and by themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from benchmarks.doctor.findings import Finding, refuse
from benchmarks.doctor.probes import examine
from benchmarks.doctor.server import Server
from benchmarks.estimate.estimate import ModelEstimate
from benchmarks.plan import ModelPlan, Plan
from serving.client import Client


def longest_turns(plan: Plan, estimates: Sequence[ModelEstimate]) -> dict[str, int]:
    """Tokens of the longest turn of each model, prompt and reply, by the name it is served as."""
    longest: dict[str, int] = {}
    for one in estimates:
        name = plan.models[one.name].served_as
        longest[name] = max(longest.get(name, 0), one.work.longest)
    return longest


def server_of(model: ModelPlan, client: Client, longest_turn: int | None) -> Server:
    """What the probes of a model at an endpoint need to know."""
    entry = model.entry
    rope: Mapping[str, object] = entry.hf_overrides.get("rope_parameters", {}) if entry else {}
    return Server(
        client,
        model.served_as,
        model.tokenizer,
        model.sampling,
        turn_tokens=longest_turn,
        window_tokens=entry.window_tokens if entry else None,
        stretched=rope.get("rope_type") == "yarn",
    )


async def admitted(server: Server, accepted: Collection[str]) -> list[str]:
    """The short checks that every sweep at an endpoint begins with; lines about what is not as it
    should be, and no reason to stop.

    Raises:
        UsageError: something is refused that the run does not accept.
        HarnessError: the server cannot be reached.
    """
    found = await examine(server, short=True)
    refuse(found, accepted)
    return told(found, accepted)


def told(findings: Sequence[Finding], accepted: Collection[str]) -> list[str]:
    """The findings as lines, what is refused first."""
    order = sorted(findings, key=lambda one: (one.severity != "refused", one.check in accepted))
    return [finding.line(accepted) for finding in order]
