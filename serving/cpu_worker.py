"""vLLM's CPU worker with two amendments: it asks for AMX, and draws without sorting a vocabulary.

Linux lets a process use the CPU's matrix tiles (AMX, Intel since 2023) only after it asked for
them; without, the first tile instruction ends it with SIGILL. vLLM 0.29.0 takes AMX for attention
in bfloat16 wherever the CPU has it, and does not ask. oneDNN does, as soon as it multiplies
matrices large enough for tiles, so that only small models die.
Source: https://docs.kernel.org/arch/x86/xstate.html
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.worker.cpu_worker import CPUWorker

CANDIDATES = 64
"""Tokens looked at first. A nucleus of more than these goes vLLM's own way."""


class TunedCPUWorker(CPUWorker):
    """Where the CPU has no AMX, asking for it does nothing."""

    def init_device(self) -> None:
        """Called by vLLM once, in the process and thread that hold the model."""
        torch.cpu._init_amx()
        super().init_device()
        sampler = self.model_runner.sampler
        theirs = sampler.topk_topp_sampler
        sampler.topk_topp_sampler = NucleusSampler(theirs.logprobs_mode, theirs.use_fp64_gumbel)


class NucleusSampler(TopKTopPSampler):
    """Draws the tokens that vLLM's sampler draws from the same logits and seeds.

    Theirs sorts the whole vocabulary for every token (vLLM 0.29.0), which takes longer than a small
    model's own step; the nucleus of top_p is nearly always among a few candidates
    (`perf/sampler.py`).
    """

    def forward_cpu(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens of shape (requests,), and the processed logprobs or logits of shape (requests,
        vocabulary) if the engine's `logprobs_mode` names them."""
        seeded = logits.shape[0] == len(generators)
        if p is None or k is not None or not seeded or self.use_fp64_gumbel:
            return self._theirs(logits, generators, k, p)
        best, tokens = logits.topk(min(CANDIDATES, logits.shape[1]))
        probabilities = (best - logits.logsumexp(-1, keepdim=True)).exp()
        mass = probabilities.cumsum(-1)
        if bool((mass[:, -1] < p).any()):
            return self._theirs(logits, generators, k, p)
        best = best.masked_fill(mass - probabilities >= p.unsqueeze(1), -torch.inf)
        noise = torch.empty_like(logits)
        for row, generator in generators.items():
            noise[row].exponential_(generator=generator)
        drawn = (best.softmax(-1) / noise.gather(1, tokens)).argmax(-1, keepdim=True)
        processed = {"processed_logits": best, "processed_logprobs": best.log_softmax(-1)}
        returned = None
        if self.logprobs_mode in processed:
            returned = torch.full_like(logits, -torch.inf)
            returned.scatter_(1, tokens, processed[self.logprobs_mode])
        return tokens.gather(1, drawn).view(-1), returned

    def _theirs(self, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        drawn: tuple[torch.Tensor, torch.Tensor | None] = super().forward_cpu(*arguments)
        return drawn
