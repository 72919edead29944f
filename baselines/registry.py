"""The baselines, by name. What a class tells of itself: core/methods.py."""

from __future__ import annotations

from collections.abc import Mapping

from baselines.full_context import FullContext
from baselines.map_reduce import MapReduce
from baselines.retrieval import Retrieval
from baselines.sliding_window import SlidingWindow

BASELINES: Mapping[str, type] = {
    "full_context": FullContext,
    "retrieval": Retrieval,
    "map_reduce": MapReduce,
    "sliding_window": SlidingWindow,
}
