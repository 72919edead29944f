"""The trainer over several processes: weights sharded by PyTorch FSDP2, rollouts shared out.

Every rank runs the loop of training/rl/loop.py with the same seeds, so all ask and pack the same:

    models      each rank reads its share of the checkpoint (training/rl/learner/models.py)
    rollouts    each rank's engine answers its share of a batch, or rank 0 asks the pool of vLLM
                replicas; all get all replies (training/rl/engines/shared_engine.py)
    update      each rank takes every world-size-th micro-batch (training/rl/learner/learner.py);
                FSDP2 gathers a layer's weights when it runs and shares out its gradients
    weights     gathered one by one into each rank's engine, or into the file that replicas read
    state       each rank writes its part (training/rl/learner/states.py): a run may go on with
                another number of ranks

`train_rank` runs in any process group; training/rl/learner/workers.py starts one with Ray Train.

What was run: two ranks on CPUs (gloo), in float32 and bfloat16, against one process; with the
torch engine, with vLLM in both ranks, and with the pool behind rank 0. What was not: GPUs
(NCCL), several machines, models of 7B and more.

Memory of a rank: training/rl/fit.py; of the machine's own memory a rank takes next to none where
there are GPUs.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from training.rl.agent import make_agent
from training.rl.engines.shared_engine import Crew, SharedEngine
from training.rl.learner.learner import Learner, World
from training.rl.learner.models import DTYPES, load_models, model_of_sizes
from training.rl.loop import Trainer
from training.rl.recipe import RlRecipe
from training.rl.run import check_machine, make_engine
from training.state import OnStep


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
    if where.type == "cuda":
        check_machine(recipe, where.type, world.size)
    # The engine first: vLLM measures what is free on the GPU, and takes its share of that.
    engine = _engine(recipe, folder, where, world)
    mesh = init_device_mesh(where.type, (world.size,))
    policy, reference = load_models(recipe, folder, where, mesh)
    trainer = Trainer(
        recipe=recipe,
        learner=Learner(policy, reference, recipe, world=world),
        engine=engine,
        method=make_agent(recipe, engine.tokenizer),
        corpora=corpora,
        writes=world.rank == 0,
    )
    trainer.run(out, on_step=on_step)


def _engine(recipe: RlRecipe, folder: Path, where: torch.device, world: World) -> SharedEngine:
    """The ranks' engines as one; weights come from the loop."""
    sizes, tokenizer = model_of_sizes(folder), Tokenizer.load(folder)
    own = None
    if recipe.engine != "pool" or world.rank == 0:  # of pools there is one, with replicas enough
        # vLLM must take this process group for what it is: ranks that it has not started.
        backend = {"distributed_executor_backend": "external_launcher"}
        own = make_engine(recipe, folder, sizes, where, tokenizer, **backend)
    ranks_each = recipe.tensor_parallel if recipe.engine == "vllm" else 1
    engines = 1 if recipe.engine == "pool" else world.size // ranks_each
    return SharedEngine(
        own,
        Crew(world.rank, world.size, engines, ranks_each),
        tokenizer=tokenizer,
        window_tokens=int(sizes.config.max_position_embeddings),
        dtype=DTYPES[recipe.precision],
    )
