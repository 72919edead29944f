"""vLLM's CPU worker, allowed to use AMX.

Linux lets a process use the CPU's matrix tiles (AMX, Intel since 2023) only after it asked for
them; without, the first tile instruction ends it with SIGILL. vLLM 0.29.0 takes AMX for attention
in bfloat16 wherever the CPU has it, and does not ask. oneDNN does, as soon as it multiplies
matrices large enough for tiles, so that only small models die.
Source: https://docs.kernel.org/arch/x86/xstate.html
"""

from __future__ import annotations

import torch
from vllm.v1.worker.cpu_worker import CPUWorker


class AmxWorker(CPUWorker):
    """Asks before anything runs; where the CPU has no AMX, it is vLLM's worker."""

    def init_device(self) -> None:
        """Called by vLLM once, in the process and thread that hold the model."""
        torch.cpu._init_amx()
        super().init_device()
