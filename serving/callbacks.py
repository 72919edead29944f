"""Hooks that run inside a replica; Ray loads them by name."""

from __future__ import annotations

from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.engines.vllm import vllm_models

UNIPROC = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class LocalReplica(CallbackBase):
    """For a model in a local folder.

    It skips the search for model files on the hub, which costs a replica's start one more
    process that imports vLLM (about 7 s of a core).

    With `engine_process="one"` (CPUs), the model runs inside the engine's process. Ray asks
    for vLLM's `mp` executor there, whose worker is a process of its own: the two poll for each
    other without a pause, on the very cores that the model needs, and where one has waited
    for a second it can sleep for 5 s past a lost notice. perf/serve.py measures both.
    """

    async def on_before_node_init(self) -> None:
        """Called by Ray before it prepares the node."""
        self.ctx.run_init_node = False
        if self.kwargs.get("engine_process") == "one":
            vllm_models.EXECUTOR_BACKEND_MP = UNIPROC
