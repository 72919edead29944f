"""Seconds of GPU that work takes at least: operations and bytes over those of the data sheet.

    prefill   each prompt token is multiplied with all weights, and meets the tokens before it
    decode    each step reads all weights and the caches of all requests in the batch, and does
              the operations of one token of each

Prompts fill a GPU, so their bytes don't count; nothing overlaps; tensor parallel GPUs divide both
evenly and talk at no cost. No program reaches these roofs: it is a least, not a forecast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.estimate.dry_run import Work
from core.arithmetic.shapes import Shape, square_flops
from core.errors import UsageError
from core.names import not_known

DEFAULT_GPU = "H100"
GPUS_FILE = Path(__file__).with_name("gpus.toml")
BYTES_A_WEIGHT = 2
"""bfloat16, of weights and of the key-value cache."""
MEMORY_SHARE = 0.9
"""What vLLM takes of a GPU's memory, by default."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a data sheet: operations a second, bytes a second, bytes of memory."""

    name: str
    flops: float
    bytes_per_s: float
    memory_bytes: float


@cache
def gpus() -> Mapping[str, Gpu]:
    """All GPUs of the table, by name."""
    tables = tomllib.loads(GPUS_FILE.read_text(encoding="utf-8"))
    return {name: Gpu(name, **table) for name, table in tables.items()}


def find_gpu(name: str) -> Gpu:
    """The GPU of that name.

    Raises:
        UsageError: the table has none.
    """
    if name not in gpus():
        raise UsageError(f"GPU {not_known(name, gpus().keys())} ({GPUS_FILE})")
    return gpus()[name]


def weight_bytes(shape: Shape) -> float:
    """Bytes of a model's weights, its embedding and its head included, as they lie on disk."""
    return BYTES_A_WEIGHT * (shape.layer_weights + 2 * shape.head_weights)


def cache_bytes(shape: Shape) -> float:
    """Bytes of one token's keys and values in all layers."""
    return 2 * BYTES_A_WEIGHT * shape.layers * shape.kv_heads * shape.head_dim


def batch_of(shape: Shape, gpu: Gpu, parallel: int, in_flight: float, tokens: float) -> float:
    """Requests of `tokens` each that one replica decodes at once: what is in flight, as far as its
    memory holds their caches.

    Raises:
        UsageError: the weights alone do not fit.
    """
    room = parallel * gpu.memory_bytes * MEMORY_SHARE - weight_bytes(shape)
    if room <= 0:
        raise UsageError(
            f"the weights take {weight_bytes(shape) / 1e9:.0f} GB and {parallel} x {gpu.name} give "
            f"{parallel * gpu.memory_bytes * MEMORY_SHARE / 1e9:.0f} GB"
        )
    return max(1.0, min(in_flight, room / (cache_bytes(shape) * max(tokens, 1.0))))


def gpu_seconds(work: Work, shape: Shape, gpu: Gpu, parallel: int, in_flight: float) -> float:
    """Seconds of all GPUs together that the work takes at least. `in_flight`: requests at one
    replica."""
    if not work.turns:
        return 0.0
    products = 2 * shape.layer_weights
    # A token meets those before it: half of the square.
    attention = square_flops(shape) * work.squares / 2
    prompts = products * work.prompt_tokens + 2 * shape.head_weights * work.turns
    mean = (work.prompt_tokens + work.reply_tokens) / work.turns
    batch = batch_of(shape, gpu, parallel, in_flight, mean)
    a_token = products + 2 * shape.head_weights
    step_bytes = weight_bytes(shape) / batch + cache_bytes(shape) * mean
    decode = work.reply_tokens * max(a_token / gpu.flops, step_bytes / gpu.bytes_per_s)
    return (prompts + attention) / gpu.flops + decode
