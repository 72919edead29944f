"""The methods that a suite can name: agents and baselines, and what a user's file holds
(`my_agents.py:MyAgent`). What a class tells of itself: core/methods.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import core.methods
from agents.registry import AGENTS
from baselines.registry import BASELINES
from core.methods import prompts_hash, settings_type
from core.tokens import Tokenizer
from core.types import Json, Method

METHODS: Mapping[str, type] = {**AGENTS, **BASELINES}


def find_method(name: str) -> type:
    """See `core.methods.find_method`."""
    return core.methods.find_method(name, METHODS)


def make_method(name: str, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> Method:
    """The method, ready to answer, for one tokenizer and its settings in full."""
    method: Any = find_method(name)
    made: Method = method(tokenizer, settings_type(method)(**settings))
    return made


def described(name: str) -> dict[str, Json]:
    """What a run keeps of a method, so that reports need no class: how it is called and drawn
    (see core/methods.py), and the hash of its prompts."""
    method = find_method(name)
    return {
        "label": str(getattr(method, "label", method.__name__)),
        "variants": dict(getattr(method, "variants", {})),
        "colours": list(getattr(method, "colours", ())),
        "is_agent": bool(getattr(method, "is_agent", True)),
        "prompts": prompts_hash(method),
    }
