"""The methods that a suite can name, and the settings each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

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


def method_settings(name: str, *layers: Mapping[str, Scalar]) -> dict[str, Json]:
    """The settings of a method in full: its published defaults under `layers`, later ones
    on top.

    Raises:
        UsageError: a layer names a setting that the method does not have.
    """
    settings_type = METHODS[name][1]
    known = {field.name for field in fields(settings_type)}
    merged = {key: value for layer in layers for key, value in layer.items()}
    if unknown := sorted(merged.keys() - known):
        raise UsageError(f"method {name} has no setting {unknown}; it has: {sorted(known)}")
    return asdict(settings_type(**merged))


def make_method(name: str, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> Method:
    """The method, ready to answer, for one tokenizer."""
    build, settings_type = METHODS[name]
    return build(tokenizer, settings_type(**settings))
