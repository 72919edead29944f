"""The methods that a suite can name, and the settings each takes.

A name may go on with settings: `gru_mem@exit_gate=false`, `memagent@chunk_tokens=2048`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agents.gru_mem import GruMem, GruMemSettings
from agents.memagent import MemAgent, MemAgentSettings
from baselines.full_context import FullContext, FullContextSettings
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Json, Method, Scalar

METHODS: dict[str, tuple[Callable[..., Method], type[Any]]] = {
    "memagent": (MemAgent, MemAgentSettings),
    "gru_mem": (GruMem, GruMemSettings),
    "full_context": (FullContext, FullContextSettings),
}


def split_method(name: str) -> tuple[str, dict[str, str]]:
    """`gru_mem@exit_gate=false` -> (`gru_mem`, {`exit_gate`: `false`}).

    Raises:
        UsageError: no such method, or what follows the @ is not settings.
    """
    base, at, text = name.partition("@")
    if base not in METHODS:
        close = difflib.get_close_matches(base, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"method {name!r}: not known; {hint}there are: {', '.join(METHODS)}")
    settings: dict[str, str] = {}
    for part in text.split(",") if at else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value) or key in settings:
            raise UsageError(
                f"method {name!r}: got {part!r} after the @, expected setting=value, each "
                "setting once, with commas between"
            )
        settings[key] = value
    return base, settings


def method_settings(name: str, *layers: Mapping[str, Scalar]) -> dict[str, Json]:
    """The settings of a method in full: its published defaults under `layers`, later ones
    on top, those in its name uppermost.

    Raises:
        UsageError: a setting that the method does not have, or a value that is not of its
            type.
    """
    base, named = split_method(name)
    settings_type = METHODS[base][1]
    known = {field.name for field in fields(settings_type)}
    merged = {key: value for layer in (*layers, named) for key, value in layer.items()}
    if unknown := sorted(merged.keys() - known):
        raise UsageError(f"method {name} has no setting {unknown}; it has: {sorted(known)}")
    try:
        settings = asdict(TypeAdapter(settings_type).validate_python(merged))
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageError(
            f"method {name}: {wrong['loc'][0]} is {wrong['input']!r}: {wrong['msg']}"
        ) from error
    for key, value in settings.items():
        if key.endswith("_tokens") and value < 1:
            raise UsageError(f"method {name}: {key} is {value}, expected at least 1")
    return settings


def make_method(name: str, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> Method:
    """The method, ready to answer, for one tokenizer and the settings of `method_settings`."""
    build, settings_type = METHODS[split_method(name)[0]]
    return build(tokenizer, settings_type(**settings))
