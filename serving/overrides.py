"""Changes to a model's own config that a table of values cannot tell. vLLM calls these, in the
replicas, when it has read config.json; they need nothing imported."""

from __future__ import annotations

from typing import Any


def without_dual_chunks(config: Any) -> Any:
    """Takes dual chunk attention out of a Qwen2.5-1M config.

    vLLM has had no attention backend for it since 0.11 (vllm-project/vllm#49296) and does not
    start such a model; an override by None fails later, at the sparse attention file.
    """
    if hasattr(config, "dual_chunk_attention_config"):
        del config.dual_chunk_attention_config
    return config
