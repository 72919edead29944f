"""The trainer over several processes: weights sharded by PyTorch FSDP2, rollouts shared out.

Every rank runs the loop of training/rl/loop.py with the same seeds, so all ask and pack the same:

    rollouts    each rank's engine answers its share of a batch (or rank 0 asks the pool of
                vLLM replicas); all get all replies
    update      each rank takes every world-size-th micro-batch (training/rl/learner/learner.py);
                FSDP2 gathers a layer's weights when it runs and shares out its gradients
    weights     gathered tensor by tensor into each rank's engine
    state       gathered to rank 0, in the one file of training/state.py: a run may go on with
                another number of ranks

`train_rank` runs in any process group; training/rl/learner/workers.py starts one with Ray Train.

What was run: two ranks on CPUs (gloo), in float32 and bfloat16, against one process; with the
torch engine, with vLLM in both ranks, and with the pool behind rank 0. What was not: GPUs
(NCCL), several machines, models of 7B and more.

Memory of a rank by calculation, for Qwen2.5-7B (7.6e9 weights) on 8 GPUs: float32 weights,
gradients and AdamW's two moments take 16 bytes a weight, 15.2 GB a rank; the bfloat16 reference
1.9 GB. Gathered for a while: embedding and output matrix of policy and reference 2.2 GB each,
with a gradient of 2.2 GB (4.4 GB while reduced, in float32), and two layers of 0.5 GB. At 16,384
tokens a micro-batch, gradient checkpointing keeps 28 states of 3,584 float32 numbers a token, 6.6
GB, and 4,096 tokens' logits are 2.5 GB, three times over. Together about 43 GB, and the rollout
engine's own 15.2 GB of bfloat16 weights and its cache beside them: a card of 80 GB. At the start
a rank's card holds the whole model in float32 for a moment (30 GB), and vLLM takes new weights
all at once (15.2 GB, when nothing is gathered and there are no gradients).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import Literal

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import Qwen2ForCausalLM

from core.tokens import Tokenizer
from core.types import Sampling
from tasks.corpora.read import Corpora
from training.rl.agent import make_agent
from training.rl.engines.engine import Generated, Request, RolloutEngine
from training.rl.learner.learner import Learner, World
from training.rl.learner.policy import scores
from training.rl.loop import Trainer
from training.rl.recipe import RlRecipe
from training.rl.run import load_models, make_engine
from training.state import ADAMW_STATE, STATE_FILE, OnStep, state_tensors, write_state

Precision = Literal["bfloat16", "float32"]


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
    policy, reference = load_models(recipe, folder, where)
    own = None
    if recipe.engine != "pool" or world.rank == 0:  # of pools there is one, with replicas enough
        # vLLM must take this process group for what it is: ranks that it has not started.
        own = make_engine(
            recipe, folder, policy, tokenizer, distributed_executor_backend="external_launcher"
        )
    engine = SharedEngine(
        own,
        world,
        answering=1 if recipe.engine == "pool" else world.size,
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
        learner=ShardedLearner(policy, reference, recipe, world=world),
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
    """A `RolloutEngine` over the ranks: each of the first `answering` ranks answers a share of
    every batch with its own `engine` (the others have None), and all get all replies. All ranks
    must ask the same."""

    def __init__(
        self,
        engine: RolloutEngine | None,
        world: World,
        *,
        answering: int,
        tokenizer: Tokenizer,
        window_tokens: int,
        precision: Precision,
    ) -> None:
        self.engine, self.world, self.answering = engine, world, answering
        self.tokenizer, self.window_tokens = tokenizer, window_tokens
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        # Replies are Python objects: over CPUs also where the default group is NCCL's.
        self.group = dist.new_group(backend="gloo")

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        """See RolloutEngine.

        Raises:
            RuntimeError: the ranks ask different things.
        """
        replies: list[Generated] = []
        if self.engine is not None:
            mine = shares(requests, self.answering)[self.world.rank]
            replies = self.engine.generate(mine, sampling) if mine else []
        asked = hash(tuple(requests))
        gathered: list[tuple[int, list[Generated]]] = [(asked, [])] * self.world.size
        dist.all_gather_object(gathered, (asked, replies), group=self.group)
        if any(other != asked for other, _ in gathered):
            raise RuntimeError("ranks ask their engines different things: not in lockstep")
        return [reply for _, part in gathered for reply in part]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See RolloutEngine. Takes sharded weights; matrices travel in the engine's precision."""
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


class ShardedLearner(Learner):
    """One rank's part of a learner. All ranks must call together."""

    def load(self, out: Path) -> int:
        """See RolloutLearner."""
        return load_sharded_state(out, self.model, self.optimizer)

    def save(self, out: Path, step: int) -> None:
        """See RolloutLearner."""
        save_sharded_state(out, self.model, self.optimizer, step, self.world)


def save_sharded_state(
    out: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    world: World,
) -> None:
    """`training.state.save_state` for sharded weights and moments: rank 0 gathers them into its
    CPU memory, 12 bytes a weight, and writes."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in state_tensors(model, optimizer):
        gathered = whole(tensor)
        if world.rank == 0:
            tensors[name] = gathered.cpu()
    if world.rank == 0:
        write_state(out, tensors, step)
    dist.barrier()  # nobody goes on to fail while the file is not there


def load_sharded_state(out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """`training.state.load_state` for sharded weights: each rank reads the file and keeps its
    own part, one tensor at a time. The file may come from any number of ranks."""
    path = out / STATE_FILE
    if not path.exists():
        return 0
    with safe_open(str(path), "pt") as file, torch.no_grad():
        names = set(file.keys())

        def part(name: str, like: DTensor) -> Tensor:
            tensor = file.get_tensor(name).to(like.device)
            if tensor.ndim == 0:
                return tensor
            # No rank sends: each has the whole tensor and keeps its part.
            return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)

        for name, weight in model.named_parameters():
            weight.copy_(part(f"weight/{name}", weight))
            state = {key: f"{key}/{name}" for key in ADAMW_STATE if f"{key}/{name}" in names}
            if state:
                optimizer.state[weight] = {key: part(at, weight) for key, at in state.items()}
        return int(file.metadata()["step"])
