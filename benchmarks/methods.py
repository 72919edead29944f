"""The methods that a suite can name. Adding one is adding its class here, or naming it from
outside: `my_agents.py:MyAgent`. What a class tells of itself: core/methods.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.gru_mem import GruMem
from agents.memagent import MemAgent
from baselines.full_context import FullContext
from core.errors import UsageError
from core.methods import prompts_hash, settings_type
from core.names import base_of, not_known
from core.outside import is_outside, load_outside
from core.tokens import Tokenizer
from core.types import Json, Method

METHODS: Mapping[str, type] = {
    "memagent": MemAgent,
    "gru_mem": GruMem,
    "full_context": FullContext,
}


def find_method(name: str) -> type:
    """The class of a method's name, whose settings may follow an @.

    Raises:
        UsageError: there is none.
    """
    base = base_of(name)
    if not is_outside(base):
        if base not in METHODS:
            raise UsageError(f"method {not_known(base, METHODS)}, and FILE.py:NAME")
        return METHODS[base]
    found = load_outside(base)
    if not (isinstance(found, type) and callable(getattr(found, "answer", None))):
        raise UsageError(
            f"method {base}: got {found!r:.80}, expected a class with "
            "`async def answer(self, problem, chat)`"
        )
    return found


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
