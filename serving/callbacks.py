"""Hooks that run inside a replica; Ray loads them by name."""

from __future__ import annotations

from ray.llm._internal.common.callbacks.base import CallbackBase


class NoDownload(CallbackBase):
    """Skips the search for model files on the hub: they lie in a folder. Saves a replica's
    start one more process that imports vLLM (about 7 s of a core)."""

    async def on_before_node_init(self) -> None:
        """Called by Ray before it prepares the node."""
        self.ctx.run_init_node = False
