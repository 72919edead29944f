"""A rollout engine over the Ray Serve pool of vLLM replicas: the same servers as a sweep's.

Prompts go out as token ids, replies come back as token ids and logprobs: nothing is tokenized
again. New weights are written, as they are gathered, to one file that every replica reads
(serving/weights.py):

    load_weights: policy -> FOLDER/step-N.safetensors -> all replicas -> each tells N
    generate:     requests -> replicas -> replies, taken only if all replicas still tell N

The second check is for a replica that died: Serve puts one in its place that begins with the
checkpoint's weights. The batch is then asked again, with the same seeds. Replies come out the
same but for bfloat16's rounding, which differs with the requests that happen to share a batch.

On several nodes the folder must be on storage that all of them see, and `ray_address` name the
cluster. Of a sharded learner only rank 0 asks the pool.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig

from core.errors import HarnessError, RequestFailed, ServerDied
from core.tokens import Tokenizer
from core.types import Sampling, Trajectory
from serving.api.wire import Reply
from serving.catalogue import REPOSITORY, CpuSettings, ModelEntry
from serving.client import Client, ClientOptions
from serving.leftovers import clear_away, new_folder
from serving.placement import with_engine
from serving.pool import SERVE_LOGS, Pool
from training.rl.engines.engine import Generated, Job, Play, Request, together
from training.rl.engines.vllm_engine import integer_seed, vllm_logprobs_mode
from training.rl.recipe import RlRecipe
from training.tensors import write_tensors

ATTEMPTS = 3
"""How often a batch is asked where replicas die under it."""
CPU_BATCH_TOKENS = 4096


def start_pool_engine(
    recipe: RlRecipe,
    folder: Path,
    *,
    log_dir: Path = SERVE_LOGS,
    weights_folder: Path | None = None,
    ray_address: str | None = None,
) -> PoolEngine:
    """Starts a pool of the checkpoint in `folder` on all that Ray reports, and waits for it. It
    ends with the engine, at the latest with this process. `weights_folder` None takes a temporary
    one of this machine.

    Raises:
        ServerDied: the pool did not start.
        UsageError: not one replica fits, or see `served_entry`.
    """
    entry = served_entry(recipe, folder)
    shared = weights_folder or new_folder()
    pool = Pool(
        entry,
        log_dir=log_dir,
        ray_address=ray_address,
        weights_folder=shared,
    )
    own = shared if weights_folder is None else None
    try:
        pool.start()
        pool.wait()
        engine = PoolEngine(pool, shared)
    except BaseException:
        _stop(pool, own)
        raise
    weakref.finalize(engine, _stop, pool, own)
    return engine


def _stop(pool: Pool, folder: Path | None) -> None:
    pool.stop()
    if folder is not None:
        clear_away(folder)


def served_entry(recipe: RlRecipe, folder: Path) -> ModelEntry:
    """The checkpoint in `folder` as the catalogue would describe it: on GPUs `tensor_parallel` of
    them a replica, of which it takes a part and leaves the rest to the learner; else one core.

    Raises:
        UsageError: vLLM has no logprobs of the kind that training needs for this sampling.
    """
    window = int(AutoConfig.from_pretrained(folder).max_position_embeddings)
    entry = ModelEntry(
        name=folder.resolve().name,
        source=f"./{os.path.relpath(folder.resolve(), REPOSITORY)}",
        window_tokens=window,
        tensor_parallel=recipe.tensor_parallel,
        engine={
            "gpu_memory_utilization": recipe.engine_memory,
            "logprobs_mode": vllm_logprobs_mode(recipe),
        },
        cpu=CpuSettings(
            # Prompts are read whole, as in the catalogue's CPU settings.
            engine={
                "enforce_eager": True,
                "max_num_seqs": 64,
                "max_num_batched_tokens": max(window, CPU_BATCH_TOKENS),
                "enable_chunked_prefill": False,
            },
        ),
    )
    return with_engine(entry, recipe.engine_options)


class PoolEngine:
    """A `training.rl.engines.engine.RolloutEngine` over a `pool` that runs and was given the same
    `weights_folder`. One caller at a time. The pool is the caller's to stop."""

    def __init__(self, pool: Pool, weights_folder: Path) -> None:
        self.pool = pool
        self.tokenizer = Tokenizer.load(pool.entry.location)
        self.window_tokens = pool.entry.window_tokens
        self._folder = weights_folder
        self._file: Path | None = None
        self._version = 0
        self._options = ClientOptions(
            pool.base_url,
            window_tokens=self.window_tokens,
            connections=pool.entry.concurrency,
        )

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Generated | RequestFailed]:
        """See RolloutEngine. What failed alone, retries included, stands as its error.

        Raises:
            ServerDied: the pool ended, or its replicas keep dying.
        """
        for _ in range(ATTEMPTS):
            try:
                replies = asyncio.run(self._all(requests, sampling))
            except HarnessError:
                self.pool.check()  # the better account, if that is why
                raise
            if self._is_current():
                return replies
        raise self._died()

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        """See FreeEngine. As many requests are at the servers as the options have connections.
        Where a replica died under them, all rollouts are played again.

        Raises:
            ServerDied: the pool ended, or its replicas keep dying.
        """
        for _ in range(ATTEMPTS):
            try:
                async with Client(self._options) as client:
                    ask = partial(self._one, client, sampling)
                    ends = await together(play(ask, job) for job in jobs)
            except HarnessError:
                self.pool.check()
                raise
            if await asyncio.to_thread(self._is_current):
                return ends
        raise self._died()

    def _is_current(self) -> bool:
        """Whether all replicas have the weights that they should have; else they get them."""
        if set(self.pool.weights_versions()) == {self._version}:
            return True
        if self._file is not None:
            self.pool.load_weights(self._file.name, self._version)
        return False

    def _died(self) -> ServerDied:
        return ServerDied(f"replicas of {self.pool.entry.name} died under {ATTEMPTS} batches")

    def sleep(self) -> None:
        """See RolloutEngine. Replicas have GPUs of their own, or a share that they keep."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. They travel in bfloat16, one by one. A layer changes once all of it
        has come: give whole models.

        Raises:
            RequestRejected, ServerDied: `serving.pool.Pool.load_weights`.
        """
        version = self._version + 1
        file = self._folder / f"step-{version}.safetensors"
        write_tensors(
            file, ((name, tensor.detach().to(torch.bfloat16)) for name, tensor in weights)
        )
        self.pool.load_weights(file.name, version)
        if self._file is not None:
            self._file.unlink()
        self._file, self._version = file, version

    async def _all(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Generated | RequestFailed]:
        """All at once; the servers' queues hold what waits. A fatal failure stops the others."""

        async def one(client: Client, request: Request) -> Generated | RequestFailed:
            try:
                return await self._one(client, sampling, request)
            except RequestFailed as error:
                return error

        async with Client(self._options) as client:
            return await together(one(client, request) for request in requests)

    async def _one(self, client: Client, sampling: Sampling, request: Request) -> Generated:
        reply = await client.complete(
            self.pool.entry.name,
            request.prompt_ids,
            max_tokens=request.max_tokens,
            sampling=replace(sampling, seed=integer_seed(request)),
        )
        return _generated(reply)


def _generated(reply: Reply) -> Generated:
    assert reply.reply_ids is not None
    assert reply.logprobs is not None
    return Generated(reply.reply_ids, reply.logprobs, reply.finish_reason)
