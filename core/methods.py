"""What a method's class tells besides how it answers (`core.types.Method`).

Its constructor takes `(tokenizer, settings)`. The hint of `settings` is a frozen dataclass: its
fields are the settings that a suite, a model's entry in the catalogue or a name
(`memagent@chunk_tokens=512`) may give. All other attributes are optional:

    label        what figures and tables call it; its class's name where it has none
    variants     {"exit_gate=false": "w/o EG"}: settings that there is a word for
    colours      of its lines, as #rrggbb; the reports choose where it has none
    is_agent     False for what agents are compared with
    prompts      its fixed texts; a run is not gone on with after one changed
    budgets_of   the method whose settings a model's entry in the catalogue holds for it as well,
                 as far as it has them: a baseline is given the budgets of what it stands beside
    most_tokens  a method, `(question) -> int`: what its largest turn takes of the model's window,
                 the prompt as the chat template renders it and the reply
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_type_hints

from core.errors import UsageError
from core.names import base_of, checked, not_known, parse_name
from core.outside import is_outside, load_outside
from core.types import Json


def find_method(name: str, known: Mapping[str, type]) -> type:
    """The class of a method's name, whose settings may follow an @: one of `known`, or from a
    user's file.

    Raises:
        UsageError: there is none.
    """
    base = base_of(name)
    if not is_outside(base):
        if base not in known:
            raise UsageError(f"method {not_known(base, known)}, and FILE.py:NAME")
        return known[base]
    found = load_outside(base)
    if not (isinstance(found, type) and callable(getattr(found, "answer", None))):
        raise UsageError(
            f"method {base}: got {found!r:.80}, expected a class with "
            "`async def answer(self, problem, chat)`"
        )
    return found


def settings_type(method: type) -> type[Any]:
    """The dataclass of a method's settings.

    Raises:
        UsageError: its constructor has no such parameter.
    """
    made: Any = method
    try:
        kind = get_type_hints(made.__init__).get("settings")
    except NameError as error:  # a hint imported for type checkers only
        raise UsageError(f"method {method.__name__}: the hints of __init__: {error}") from error
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise UsageError(
            f"method {method.__name__}: got {kind} as the hint of `settings`, expected a frozen "
            "dataclass: def __init__(self, tokenizer: Tokenizer, settings: MySettings)"
        )
    return kind


def method_settings(method: type, name: str, *layers: Mapping[str, Any]) -> dict[str, Json]:
    """The settings of a method in full: its own defaults under `layers`, later ones on top,
    those in its name uppermost.

    Raises:
        UsageError: a setting that the method does not have, or a value that is not of its type.
    """
    values = {k: v for layer in (*layers, parse_name(name).settings) for k, v in layer.items()}
    settings = asdict(checked(settings_type(method), values, f"method {name}"))
    for key, value in settings.items():
        if key.endswith("_tokens") and isinstance(value, int) and value < 1:
            raise UsageError(f"method {name}: {key} is {value}, expected at least 1")
    return settings


def catalogue_settings(
    method: type, name: str, entries: Mapping[str, Mapping[str, Json]]
) -> dict[str, Json]:
    """What a model's entry in the catalogue, by method, says for one: those of the settings of
    `budgets_of` that it has, and on top what is said of it by its own name."""
    alike = entries.get(str(getattr(method, "budgets_of", "")), {})
    own = {field.name for field in fields(settings_type(method))}
    return {k: v for k, v in alike.items() if k in own} | {**entries.get(base_of(name), {})}


def prompts_hash(method: type) -> str:
    """SHA-256 of a method's fixed texts, in hex."""
    return hashlib.sha256(json.dumps(getattr(method, "prompts", ())).encode()).hexdigest()
