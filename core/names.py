"""Names with settings, as suites and flags write them: `vt@hops=2,chains=3`.

A task, a method or a model is named so. The base is a name of a registry, or something from
outside the project (`my_agents.py:MyAgent`, see core/outside.py); the settings are the fields of
a frozen dataclass, checked where they come in.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from core.errors import UsageError

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Name:
    """`base@key=value,key=value`, taken apart; settings keep their order."""

    base: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ",".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.base}@{settings}" if settings else self.base

    def with_setting(self, key: str, value: object) -> Name:
        """The name with one setting more.

        Raises:
            UsageError: it has that setting already.
        """
        if key in self.settings:
            raise UsageError(f"{self}: {key} is given twice")
        return Name(self.base, {**self.settings, key: str(value)})


def parse_name(text: str) -> Name:
    """Takes a name apart.

    Raises:
        UsageError: what follows the @ is not settings, or one is given twice.
    """
    base, at, rest = text.partition("@")
    name = Name(base)
    for part in rest.split(",") if at else ():
        key, equals, value = part.partition("=")
        if not (base and key and equals and value):
            raise UsageError(
                f"{text!r}: got {part!r} after the @, expected setting=value, with commas between"
            )
        name = name.with_setting(key, value)
    return name


def base_of(text: str) -> str:
    """A name without its settings: `gru_mem@exit_gate=false` -> `gru_mem`."""
    return text.partition("@")[0]


def checked(kind: type[T], values: Mapping[str, Any], what: str, also: Collection[str] = ()) -> T:
    """`kind`, a dataclass or a pydantic model, made of `values`; texts become numbers and truths.

    `what` begins the error's text. `also`: fields that a user may not set, left out of the list
    of those there are.

    Raises:
        UsageError: an unknown field, or a value that its field does not take.
    """
    from pydantic import TypeAdapter, ValidationError

    fields = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", {})
    for key in values:
        if key not in fields:
            raise UsageError(f"{what}: setting {not_known(key, sorted({*fields} - {*also}))}")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise UsageError(f"{what}: {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """What is wrong where, in one line: `cells number 1 samples: got 0: Input should be ...`."""
    faults = []
    for fault in error.errors():
        place = " ".join(
            f"number {part + 1}" if isinstance(part, int) else part for part in fault["loc"]
        )
        given = "" if fault["type"] in ("missing", "value_error") else f"got {fault['input']!r:.80}"
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            message = "there is no such setting"
        faults.append(": ".join(part for part in (place, given, message) if part))
    return "; ".join(faults)


def not_known(name: str, known: Collection[str]) -> str:
    """The end of an error about a name that is not there: near misses, and what there is."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(lower[one] for one in close)}? " if close else ""
    return f"{name!r} is not known; {hint}there are: {', '.join(known)}"
