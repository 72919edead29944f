"""A rollout engine over vLLM in this process, for GPUs and for models beyond the torch engine.

New weights go into the running engine: its layers are loaded again, and what it had computed
of prompts with the old weights is dropped. vLLM knows weights by their checkpoint names, which
are those of the learner's `named_parameters()`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sampling
from serving.app import CPU_WORKER
from serving.weights import reload
from training.rl.engines.engine import Generated, Request
from training.rl.recipe import RlRecipe

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: weights need no transport
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""What vLLM reads on import, where the caller's own environment does not say otherwise."""


class VllmEngine:
    """A `training.rl.engines.engine.RolloutEngine`: the checkpoint in `folder`, in vLLM.

    `options` are vLLM's engine arguments, on top of those set here. It takes a part of a GPU
    and leaves the rest to the learner.

    Raises:
        UsageError: vLLM is not installed.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from vllm import LLM
        except ImportError as error:
            raise UsageError(
                "the vllm engine needs vLLM (requirements/); the torch engine does not"
            ) from error
        self.tokenizer = Tokenizer.load(folder)
        arguments: dict[str, Any] = {
            "model": str(folder),
            "skip_tokenizer_init": True,
            "logprobs_mode": "processed_logprobs",
            "enable_prefix_caching": True,
            "enforce_eager": True,
            "disable_log_stats": True,
            "gpu_memory_utilization": 0.4,
        }
        if not torch.cuda.is_available():
            # Splitting a prompt winds back the sampler of a seeded request, which a CPU's cannot.
            arguments["enable_chunked_prefill"] = False
            arguments["worker_cls"] = CPU_WORKER
        self._llm = LLM(**(arguments | options))
        config = self._llm.llm_engine.model_config
        self.window_tokens = int(config.max_model_len)
        generation = config.try_get_generation_config()
        ends = generation.get("eos_token_id", config.hf_config.eos_token_id)
        self.end_ids = [ends] if isinstance(ends, int) else list(ends)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        """See RolloutEngine."""
        from vllm import SamplingParams, TokensPrompt

        settings = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                repetition_penalty=sampling.repetition_penalty,
                max_tokens=request.max_tokens,
                seed=integer_seed(request),
                stop_token_ids=self.end_ids,
                logprobs=0,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [TokensPrompt(prompt_token_ids=list(r.prompt_ids)) for r in requests]
        outputs = self._llm.generate(prompts, settings, use_tqdm=False)
        return [_generated(output.outputs[0]) for output in outputs]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. A layer changes once all of it has come: give whole models."""
        self._llm.collective_rpc(reload, args=(list(weights),))
        self._llm.reset_prefix_cache()


def vllm_logprobs_mode(recipe: RlRecipe) -> str:
    """The setting under which vLLM's logprobs are those that `Generated` promises, for the
    recipe's rollouts: vLLM has them before temperature and top_p, or after both.

    Raises:
        UsageError: neither is what training needs for this sampling.
    """
    scaled = any(one.temperature != 1 for one in recipe.samplings)
    cut = any(one.top_p < 1 for one in recipe.samplings)
    if scaled and cut and recipe.old_logprobs == "engine":
        raise UsageError(
            "with a temperature other than 1 in any stage, vLLM's logprobs are those after top_p "
            'cut: take top_p = 1 throughout, or old_logprobs = "trainer"'
        )
    return "processed_logprobs" if scaled else "raw_logprobs"


def integer_seed(request: Request) -> int:
    """The request's seed as vLLM takes one: an integer of 63 bits."""
    return int(np.random.SeedSequence(request.seed).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _generated(completion: Any) -> Generated:
    ids = tuple(completion.token_ids)
    logprobs = tuple(
        float(entry[token].logprob) for token, entry in zip(ids, completion.logprobs, strict=True)
    )
    return Generated(ids, logprobs, completion.finish_reason)
