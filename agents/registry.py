"""The agents, by name. What a class tells of itself: core/methods.py."""

from __future__ import annotations

from collections.abc import Mapping

from agents.gru_mem import GruMem
from agents.memagent import MemAgent

AGENTS: Mapping[str, type] = {"memagent": MemAgent, "gru_mem": GruMem}
