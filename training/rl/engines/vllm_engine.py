"""A rollout engine over vLLM in this process, for GPUs and for models beyond the torch engine.

New weights go into the running engine one by one: its layers are loaded again, and what it had
computed of prompts with the old weights is dropped. On GPUs it runs compiled, and may sleep while
the policy learns: its cache and its weights, which new ones replace anyway, are given away then
(vLLM's sleep level 2), and come back in two steps, so that the weights are there before the cache
is. Not run: GPUs, and so sleep itself; tests/training/rl/test_vllm_engine.py says in which order
vLLM is told. vLLM knows weights by their checkpoint names, which are those of the learner's
`named_parameters()`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sampling, Trajectory
from serving.app import CPU_WORKER
from serving.weights import reload
from training.rl.engines.driver import Driver
from training.rl.engines.engine import Generated, Job, Play, Request, together
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
    and leaves the rest to the learner. `sleeps`: that part too, while the learner works.

    Raises:
        UsageError: vLLM is not installed, or an option is not for a recipe to give.
    """

    def __init__(self, folder: Path, *, sleeps: bool = False, **options: Any) -> None:
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
            "disable_log_stats": True,
        }
        on_gpu = torch.cuda.is_available()
        self._sleeps = sleeps and on_gpu
        self._asleep = False
        if on_gpu:
            arguments["enable_sleep_mode"] = sleeps
        else:
            arguments["enforce_eager"] = True
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
        from vllm import TokensPrompt

        settings = [self._settings(request, sampling) for request in requests]
        prompts = [TokensPrompt(prompt_token_ids=list(r.prompt_ids)) for r in requests]
        outputs = self._llm.generate(prompts, settings, use_tqdm=False)
        return [_generated(output.outputs[0]) for output in outputs]

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        """See FreeEngine.

        Raises:
            ServerDied: vLLM failed.
        """
        async with Driver(partial(self._advance, sampling), self._abort) as ask:
            return await together(play(ask, job) for job in jobs)

    def _advance(
        self, sampling: Sampling, new: Sequence[tuple[str, Request]]
    ) -> list[tuple[str, Generated]]:
        """Adds requests to those that run, computes one step; what has ended with it."""
        from vllm import TokensPrompt

        engine = self._llm.llm_engine
        for name, request in new:
            prompt = TokensPrompt(prompt_token_ids=list(request.prompt_ids))
            engine.add_request(name, prompt, self._settings(request, sampling))
        return [
            (output.request_id, _generated(output.outputs[0]))
            for output in engine.step()
            if output.finished
        ]

    def _abort(self, names: Sequence[str]) -> None:
        self._llm.llm_engine.abort_request(list(names))

    def _settings(self, request: Request, sampling: Sampling) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            repetition_penalty=sampling.repetition_penalty,
            max_tokens=request.max_tokens,
            seed=integer_seed(request),
            stop_token_ids=self.end_ids,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def sleep(self) -> None:
        """See RolloutEngine."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. A layer changes once all of it has come: give whole models."""
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        # The engine is in this process: it takes them from the iterator, one by one.
        self._llm.collective_rpc(reload, args=(iter(weights),))
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
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
