"""The baselines, by name. What a class tells of itself: core/methods.py."""

from __future__ import annotations

from collections.abc import Mapping

from baselines.full_context import FullContext

BASELINES: Mapping[str, type] = {"full_context": FullContext}
