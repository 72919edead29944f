"""What checks find, what is refused of it, and what a user may accept by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from core.errors import UsageError
from core.names import not_known

Severity = Literal["refused", "noted"]

CHECKS: Mapping[str, str] = {
    "data": "data files are not those that were fetched or published",
    "disk": "the disk may not hold the run",
    "memory": "the machine may not hold the model",
    "gpu": "the machine may not have the GPUs",
    "window": "the model's window is smaller than what is asked",
    "yarn": "the window is longer than the model's positions, without YaRN",
    "model": "another model answers",
    "request": "requests are refused as the sweep sends them",
    "template": "the chat template is not the tokenizer's own",
    "tokenizer": "the server counts tokens otherwise than the tokenizer that cuts the chunks",
    "cut": "long prompts are cut",
    "max_tokens": "max_tokens is not obeyed",
    "temperature": "the temperature is not applied",
    "top_p": "top_p is not applied",
    "repetition_penalty": "the repetition penalty is not the one asked for",
    "seed": "seeds are not obeyed",
    "greedy": "greedy replies differ from time to time",
}
"""What each check finds where something is wrong, in the words that a report uses."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `model` is empty where it is none's."""

    check: str
    severity: Severity
    found: str
    change: str
    model: str = ""

    def line(self, accepted: Collection[str] = ()) -> str:
        """Everything in one line."""
        kind = "accepted" if self.check in accepted else self.severity
        of = f" ({self.model})" if self.model else ""
        return f"{kind:8}  {self.check}{of}: {self.found}. {self.change}".rstrip()


def accepted_settings(names: Collection[str]) -> dict[str, str]:
    """What a run keeps of the deviations that its user accepts: name -> what it means.

    Raises:
        UsageError: there is no check of that name.
    """
    for name in names:
        if name not in CHECKS:
            raise UsageError(f"--accept: check {not_known(name, CHECKS)}")
    return {name: CHECKS[name] for name in sorted(names)}


def refused(findings: Iterable[Finding], accepted: Collection[str]) -> list[Finding]:
    """Those that a sweep does not begin with."""
    return [f for f in findings if f.severity == "refused" and f.check not in accepted]


def refuse(findings: Iterable[Finding], accepted: Collection[str]) -> None:
    """Ends what would measure something else than it says.

    Raises:
        UsageError: something is refused; says what, and how to go on.
    """
    if bad := refused(findings, accepted):
        names = " ".join(f"--accept {name}" for name in dict.fromkeys(f.check for f in bad))
        raise UsageError(
            "this would measure something else than it says.\n"
            + "\n".join(finding.line() for finding in bad)
            + f"\nMend it, or take it as it is: {names} (kept in the run and named in its reports)."
        )
