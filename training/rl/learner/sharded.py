"""The trainer over several processes: weights sharded by PyTorch FSDP2, rollouts shared out.

Every rank runs the loop of training/rl/loop.py with the same seeds, so all ask and pack the same:

    rollouts    each rank's engine answers its share of a batch (or rank 0 asks the pool of
                vLLM replicas); all get all replies
    update      each rank takes every world-size-th micro-batch (training/rl/learner/learner.py);
                FSDP2 gathers a layer's weights when it runs and shares out its gradients
    weights     gathered one by one into each rank's engine (`tensor_parallel` ranks share one)
    state       each rank writes its part (training/rl/learner/states.py): a run may go on with
                another number of ranks

`train_rank` runs in any process group; training/rl/learner/workers.py starts one with Ray Train.

What was run: two ranks on CPUs (gloo), in float32 and bfloat16, against one process; with the
torch engine, with vLLM in both ranks, and with the pool behind rank 0. What was not: GPUs
(NCCL), several machines, models of 7B and more.

Memory of a rank: training/rl/fit.py. Models are loaded in the machine's memory, each rank a whole
one (4 bytes a weight, 2 more for a reference), and a layer at a time goes to the rank's GPU; new
weights are gathered one by one while the engine takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import MethodType
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from transformers import Qwen2ForCausalLM

from core.errors import RequestFailed
from core.tokens import Tokenizer
from core.types import Sampling, Trajectory
from tasks.corpora.read import Corpora
from training.rl.agent import make_agent
from training.rl.engines.engine import (
    FreeEngine,
    Generated,
    Job,
    Play,
    Request,
    RolloutEngine,
)
from training.rl.learner.learner import Learner, World
from training.rl.learner.policy import scores
from training.rl.loop import Trainer
from training.rl.recipe import RlRecipe
from training.rl.run import check_machine, load_models, make_engine
from training.state import OnStep

T = TypeVar("T")
Precision = Literal["bfloat16", "float32"]

COLLECTIVE_TIMEOUT_S = 6 * 3600
"""Ranks wait for each other for so long: longer than any reply is waited for (half an hour,
serving/client.py) and than a whole step's rollouts, which they await where one rank asks a pool."""


def train_rank(
    recipe: RlRecipe,
    folder: Path,
    out: Path,
    where: torch.device,
    corpora: Corpora,
    *,
    on_step: OnStep | None = None,
) -> None:
    """This rank's part of a run from the checkpoint in `folder`, up to the recipe's last step.

    Call it on all ranks of the default process group (gloo for CPUs, NCCL for GPUs). `out` is
    claimed already and one folder for all of them. `on_step` hears of steps on rank 0.
    """
    world = World(dist.get_rank(), dist.get_world_size())
    tokenizer = Tokenizer.load(folder)
    if where.type == "cuda":
        check_machine(recipe, where.type, world.size)
    # `shard` moves a layer at a time; only the torch engine wants them whole where it answers.
    whole_at = where if recipe.engine == "torch" else torch.device("cpu")
    policy, reference = load_models(recipe, folder, whole_at)
    own = None
    if recipe.engine != "pool" or world.rank == 0:  # of pools there is one, with replicas enough
        # vLLM must take this process group for what it is: ranks that it has not started.
        own = make_engine(
            recipe, folder, policy, tokenizer, distributed_executor_backend="external_launcher"
        )
    engine = SharedEngine(
        own,
        world,
        answering=1 if recipe.engine == "pool" else world.size // recipe.tensor_parallel,
        sharing=recipe.tensor_parallel if recipe.engine == "vllm" else 1,
        tokenizer=tokenizer,
        window_tokens=int(policy.config.max_position_embeddings),
        precision=recipe.precision,
    )
    mesh = init_device_mesh(where.type, (world.size,))
    shard(policy, mesh, recipe.precision)
    if reference is not None:
        shard(reference, mesh, "float32")  # as it is: already in the precision it computes in
    trainer = Trainer(
        recipe=recipe,
        learner=Learner(policy, reference, recipe, world=world),
        engine=engine,
        method=make_agent(recipe, tokenizer),
        corpora=corpora,
        writes=world.rank == 0,
    )
    trainer.run(out, on_step=on_step)


def shard(model: Qwen2ForCausalLM, mesh: DeviceMesh, precision: Precision) -> None:
    """Shard the weights over the mesh, in place: a group for each layer, one for the rest.

    With bfloat16, weights are gathered in it and gradients summed in float32; what is kept, and
    the optimizer's, stays as it is. Score under autocast then, as on one device. Make the
    optimizer after this. Call on all ranks, with equal weights.
    """
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16":
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # Embedding (may be tied to the output matrix), last norm and output matrix. They are used
    # one by one within `scores`, so that is what they are gathered around, not `forward`.
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.scores = MethodType(scores, model)
    register_fsdp_forward_method(model, "scores")


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered, any other as it is. All ranks must call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class SharedEngine:
    """A `RolloutEngine` over the ranks: a batch is shared out among `answering` engines, and all
    ranks get all replies. `sharing` ranks that follow each other hold the parts of one engine
    (tensor parallel): each asks its part the same at once. `engine` is None on a rank without
    one. All ranks must ask the same."""

    def __init__(
        self,
        engine: RolloutEngine | None,
        world: World,
        *,
        answering: int,
        sharing: int = 1,
        tokenizer: Tokenizer,
        window_tokens: int,
        precision: Precision,
    ) -> None:
        self.engine, self.world = engine, world
        self.answering, self.sharing = answering, sharing
        self.tokenizer, self.window_tokens = tokenizer, window_tokens
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        # Replies are Python objects: over CPUs also where the default group is NCCL's.
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S))

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Generated | RequestFailed]:
        """See RolloutEngine.

        Raises:
            RuntimeError: the ranks ask different things.
        """
        replies: Sequence[Generated | RequestFailed] = []
        if self.engine is not None:
            place, part = divmod(self.world.rank, self.sharing)
            mine = shares(requests, self.answering)[place]
            replies = self.engine.generate(mine, sampling) if mine else []
            if part:  # the first of those that share an engine tells what it answered
                replies = []
        return self._of_all_ranks(hash(tuple(requests)), replies)

    async def run(self, jobs: Sequence[Job], sampling: Sampling, play: Play) -> list[Trajectory]:
        """See FreeEngine: each rank with an engine plays a share of the jobs by itself, those of a
        question together, and all get all trajectories at the end.

        Raises:
            RuntimeError: the ranks play different jobs, or share an engine.
        """
        if self.sharing > 1:
            raise RuntimeError("ranks that share an engine must ask it in lockstep")
        ends: list[Trajectory] = []
        if self.engine is not None:
            free: FreeEngine = self.engine  # type: ignore[assignment]
            start, end = (len(jobs) * (self.world.rank + n) // self.answering for n in (0, 1))
            mine = jobs[start:end]
            ends = await free.run(mine, sampling, play) if mine else []
        return self._of_all_ranks(hash(tuple(job.seed for job in jobs)), ends)

    def _of_all_ranks(self, asked: int, answers: Sequence[T]) -> list[T]:
        """What all ranks have, in the order of ranks. `asked` must be the same on all."""
        gathered: list[tuple[int, Sequence[T]]] = [(asked, [])] * self.world.size
        dist.all_gather_object(gathered, (asked, answers), group=self.group)
        if any(other != asked for other, _ in gathered):
            raise RuntimeError("ranks ask their engines different things: not in lockstep")
        return [answer for _, part in gathered for answer in part]

    def sleep(self) -> None:
        """See RolloutEngine."""
        if self.engine is not None:
            self.engine.sleep()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. Takes sharded weights, gathered one by one as the engine takes them;
        matrices travel in its precision."""
        whole_ones = self._gathered(weights)
        if self.engine is not None:
            self.engine.load_weights(whole_ones)
        else:
            for _ in whole_ones:  # a part in the gathering nevertheless
                pass

    def _gathered(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights:
            with torch.inference_mode(False), torch.no_grad():
                tensor = weight.detach()
                yield name, whole(tensor.to(self.dtype) if tensor.ndim > 1 else tensor)


def shares(requests: Sequence[Request], count: int) -> list[list[Request]]:
    """`requests` in `count` runs of about as many tokens each, in order: rollouts of a group
    stand together, so the prompt they share is read on one rank."""
    parts: list[list[Request]] = [[] for _ in range(count)]
    sizes = [len(request.prompt_ids) + request.max_tokens for request in requests]
    total, before = sum(sizes), 0
    for request, size in zip(requests, sizes, strict=True):
        parts[(2 * before + size) * count // (2 * total)].append(request)
        before += size
    return parts
