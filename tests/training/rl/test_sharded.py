"""Two gloo ranks against one process: updates, metrics, saved states, shared rollouts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from transformers import Qwen2ForCausalLM

from core.types import Sampling
from tests.training.rl.live_bytes import LiveBytes, counted_reads
from tests.training.rl.small import flat, groups_of, read_state, small_model, small_recipe
from training.rl.engines.engine import Generated, Request, together
from training.rl.engines.shared_engine import Crew, SharedEngine, gathered, shares
from training.rl.learner import policy, states
from training.rl.learner.learner import Learner, World
from training.rl.learner.models import load_models, shard
from training.rl.learner.packing import pack
from training.rl.learner.protocol import Groups
from training.rl.loss import LossSettings
from training.rl.recipe import RlRecipe
from training.state import ADAMW_STATE, save_checkpoint

RANKS = 2
CASES: dict[str, dict[str, Any]] = {
    "reference": {"old_logprobs": "trainer"},
    "tied": {
        "mini_batches": 2,
        "gradient_checkpointing": True,
        "loss": LossSettings(kl_beta=0.0),
    },
    "mixed": {
        "precision": "bfloat16",
        "old_logprobs": "trainer",
        "loss": LossSettings(kl_beta=0.0),
    },
}
SLICES = {"tied": 5}
"""Reply tokens whose logits are held at once: few enough that they are made again."""
BROKEN = "reference"
"""The case that is saved after its first step, and goes on from there."""
NEAR = 0.3 * small_recipe().learning_rate
"""AdamW's first steps are of about the rate for every weight, whatever its gradient's size, so
rounding shows in a few of those near zero, as a part of a step."""
UNCOMPARED = {"update_seconds"}


def models(name: str) -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM | None, RlRecipe]:
    """Policy, reference (without a KL term in the loss: for the metric alone), recipe."""
    reference = None if name == "mixed" else small_model(seed=1).requires_grad_(False)
    return small_model(tied=name == "tied"), reference, small_recipe(**CASES[name])


def step_groups(step: int) -> Groups:
    return groups_of(4, seed=2 + 6 * step)


def rank_learner(name: str, world: World) -> Learner:
    model, reference, recipe = models(name)
    mesh = init_device_mesh("cpu", (RANKS,))
    shard(model, mesh, recipe.precision)
    if reference is not None:
        shard(reference, mesh, "float32")
    return Learner(model, reference, recipe, world=world)


def weights_of(model: Qwen2ForCausalLM) -> dict[str, Tensor]:
    return {name: gathered(weight.detach()) for name, weight in model.named_parameters()}


@dataclass
class Echo:
    """An engine that answers a prompt with its length, and keeps the weights it was given."""

    tokenizer: ClassVar[Any] = None
    window_tokens: int = 512
    asked: list[Request] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        assert requests
        self.asked += requests
        return [Generated((len(r.prompt_ids),), (-1.0,), "stop") for r in requests]

    async def run(self, jobs: Any, sampling: Sampling, play: Any) -> Any:
        async def ask(request: Request) -> Generated:
            return self.generate([request], sampling)[0]

        return await together(play(ask, job) for job in jobs)

    def sleep(self) -> None:
        pass

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        with torch.inference_mode():
            self.weights = {name: weight.clone() for name, weight in weights}


def shared_engine(
    engine: Echo | None, world: World, *, engines: int, ranks_each: int = 1
) -> SharedEngine:
    return SharedEngine(
        engine,
        Crew(world.rank, world.size, engines, ranks_each),
        tokenizer=Echo.tokenizer,
        window_tokens=512,
        dtype=torch.float32,
    )


def requests(count: int) -> list[Request]:
    return [Request(tuple(range(1, n + 2)), 4, (n,)) for n in range(count)]


def look_at_loading(out: Path) -> dict[str, Any]:
    """What a rank reads and holds while policy and reference are loaded, and whether they are the
    checkpoint's; the same of the state of one process in `out`/alone."""
    mesh = init_device_mesh("cpu", (RANKS,))
    recipe = small_recipe(precision="bfloat16")
    with LiveBytes() as live, counted_reads() as read:
        policy, reference = load_models(recipe, out / "model", torch.device("cpu"), mesh)
    assert reference is not None
    expected = load_file(out / "model" / "model.safetensors")
    kept = [one.to_local() for one in (*policy.parameters(), *reference.parameters())]
    found = {
        "most": live.most,
        "kept": sum(one.numel() * one.element_size() for one in kept),
        "read": read,
        "policy": same(weights_of(policy), {k: v.float() for k, v in expected.items()}),
        "reference": same(weights_of(reference), expected),
        "training": policy.training or reference.training,
    }
    learner = Learner(policy, None, recipe)
    found["alone_at"] = states.load(out / "alone", learner.model, learner.optimizer)
    written = read_state(out / "alone")
    moments = {
        f"{part}/{name}": gathered(learner.optimizer.state[weight][part])
        for name, weight in learner.model.named_parameters()
        for part in ADAMW_STATE
    }
    weights = {f"weight/{name}": one for name, one in weights_of(learner.model).items()}
    found["alone"] = same(weights | moments, written)
    return found


def run_rank(rank: int, out: Path) -> None:
    """All that the tests below look at, in one process group: starting one takes seconds."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{out}/group", rank=rank, world_size=RANKS)
    world = World(rank, RANKS)
    found: dict[str, Any] = {}
    for name in CASES:
        policy.SLICE = SLICES.get(name, 4096)
        learner = rank_learner(name, world)
        found[name] = []
        for step in range(2):
            found[name].append(learner.update(step_groups(step), step))
            if name == BROKEN and step == 0:
                states.save(out, learner.model, learner.optimizer, 1, keep=1)
        weights = weights_of(learner.model)
        if rank == 0:
            save_file(weights, str(out / f"{name}.safetensors"))

    policy.SLICE = 4096
    resumed = rank_learner(BROKEN, world)
    found["resumed_at"] = states.load(out, resumed.model, resumed.optimizer)
    resumed.update(step_groups(1), 1)
    weights = weights_of(resumed.model)
    if rank == 0:
        save_file(weights, str(out / "resumed.safetensors"))
    found["loaded"] = look_at_loading(out)

    echo, client = Echo(), Echo()
    engine = shared_engine(echo, world, engines=RANKS)
    first = shared_engine(client if rank == 0 else None, world, engines=1)
    plain = Sampling(temperature=1.0, top_p=1.0)
    found["replies"] = [
        [reply.reply_ids[0] for reply in one.generate(requests(count), plain)]
        for one, count in ((engine, 7), (engine, 1), (first, 3))
    ]
    found["own"] = len(echo.asked)
    part = Echo()
    one_of_two = shared_engine(part, world, engines=1, ranks_each=RANKS)
    found["of_one_engine"] = [r.reply_ids[0] for r in one_of_two.generate(requests(3), plain)]
    found["parts_asked"] = len(part.asked)
    free = Echo()

    async def play(ask: Any, job: Any) -> int:
        return int((await ask(requests(5)[job.seed[0]])).reply_ids[0])

    jobs: Any = [SimpleNamespace(seed=(n,)) for n in range(5)]
    found["free"] = asyncio.run(shared_engine(free, world, engines=RANKS).run(jobs, plain, play))
    found["played"] = len(free.asked)
    first.load_weights(resumed.model.named_parameters())
    found["clients_weights"] = len(client.weights)
    engine.load_weights(resumed.model.named_parameters())
    found["same_weights"] = all(
        torch.equal(weight, weights[name]) for name, weight in echo.weights.items()
    ) and len(echo.weights) == len(weights)
    try:
        engine.generate(requests(2 + rank), plain)
    except RuntimeError as error:
        found["out_of_step"] = str(error)
    (out / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder that two ranks wrote into, and what each of them found."""
    out = tmp_path_factory.mktemp("ranks")
    (out / "model").mkdir()
    save_checkpoint(small_model(), out / "model")
    learner = Learner(small_model(seed=3), None, small_recipe(loss=LossSettings(kl_beta=0.0)))
    learner.update(step_groups(0), 0)
    learner.save(out / "alone", 7)
    torch.multiprocessing.spawn(run_rank, args=(out,), nprocs=RANKS)
    return out, [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[list[dict[str, float]], dict[str, Tensor]]]:
    """The same updates in this process: metrics of both steps, and the weights after them."""
    found = {}
    for name in CASES:
        learner = Learner(*models(name))
        metrics = [learner.update(step_groups(step), step) for step in range(2)]
        found[name] = (metrics, weights_of(learner.model))
    return found


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert float((found[name] - weight).abs().max()) < tolerance, name


def test_the_ranks_have_uneven_work() -> None:
    for step in range(2):
        packed = pack(flat(step_groups(step)), budget=small_recipe().micro_batch_tokens, pad=0)
        assert len(packed.micro_batches) % RANKS
        assert len(packed.micro_batches) > RANKS


@pytest.mark.parametrize(
    ("name", "relative"), [("reference", 2e-3), ("tied", 2e-3), ("mixed", 0.1)]
)
def test_two_ranks_make_the_update_of_one(
    name: str,
    relative: float,
    ranks: tuple[Path, list[dict[str, Any]]],
    alone: dict[str, tuple[list[dict[str, float]], dict[str, Tensor]]],
) -> None:
    out, found = ranks
    metrics, weights = alone[name]
    for step in range(2):
        for key in metrics[step].keys() - UNCOMPARED:
            for rank in found:
                expected = pytest.approx(metrics[step][key], rel=relative, abs=1e-5 + relative / 10)
                assert rank[name][step][key] == expected, (step, key)
    saved = load_file(out / f"{name}.safetensors")
    if name != "mixed":
        assert_near(saved, weights, NEAR)
        return
    # What rounding to bfloat16 does to gradients near zero, AdamW's first steps show in full.
    start = dict(models(name)[0].named_parameters())
    moves = [
        torch.cat([(end[key] - weight.detach()).flatten() for key, weight in start.items()])
        for end in (saved, weights)
    ]
    assert float(torch.cosine_similarity(*moves, dim=0)) > 0.98


def test_a_sharded_run_goes_on_from_its_state_to_the_same_bytes(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    out, found = ranks
    assert [rank["resumed_at"] for rank in found] == [1, 1]
    unbroken = load_file(out / f"{BROKEN}.safetensors")
    resumed = load_file(out / "resumed.safetensors")
    assert all(torch.equal(resumed[name], weight) for name, weight in unbroken.items())


def test_one_process_goes_on_from_the_state_of_two(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    out, _ = ranks
    learner = Learner(*models(BROKEN))
    assert states.load(out, learner.model, learner.optimizer) == 1
    learner.update(step_groups(1), 1)
    expected = load_file(out / f"{BROKEN}.safetensors")
    assert_near(weights_of(learner.model), expected, NEAR)


def test_a_rank_reads_and_holds_its_share_and_one_tensors_rows(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    out, found = ranks
    sizes = [one.numel() for one in load_file(out / "model" / "model.safetensors").values()]
    for rank in found:
        loaded = rank["loaded"]
        assert loaded["policy"]
        assert loaded["reference"]
        assert not loaded["training"]
        # float32 and bfloat16; an uneven matrix gives the first rank a row more
        assert loaded["kept"] == pytest.approx((4 + 2) * sum(sizes) / RANKS, rel=0.05)
        # Of what the files hold in bfloat16, for each of the two models once.
        assert sum(loaded["read"]) == loaded["kept"] * 2 * 2 / (4 + 2)
        assert max(loaded["read"]) <= 2 * max(sizes) / RANKS + 64
        assert loaded["kept"] <= loaded["most"] <= loaded["kept"] + 4 * max(sizes) / RANKS + 2048


def test_two_ranks_go_on_from_the_state_of_one_process(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert [rank["loaded"]["alone_at"] for rank in ranks[1]] == [7, 7]
    assert all(rank["loaded"]["alone"] for rank in ranks[1])


def test_no_rank_writes_more_than_its_rows_of_a_state(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    (folder,) = (ranks[0] / "states").glob("step-*")
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank-0000.safetensors",
        "rank-0001.safetensors",
        "state.json",
    ]
    layout = json.loads((folder / "state.json").read_text())
    assert layout["ranks"] == RANKS
    whole = small_model().state_dict()
    for rank in range(RANKS):
        for name, tensor in load_file(folder / f"rank-{rank:04}.safetensors").items():
            placed = layout["tensors"][name]
            part, _, weight = name.partition("/")
            if part == "step":
                assert (rank, placed) == (0, {"shape": [], "edges": [0, 1]})
                continue
            assert placed["shape"] == list(whole[weight].shape)
            start, end = placed["edges"][rank : rank + 2]
            assert (
                len(tensor)
                == end - start
                == -(-placed["shape"][0] // 2) - rank * (placed["shape"][0] % 2)
            )


def test_all_ranks_get_all_replies_in_order(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    _, found = ranks
    for rank in found:
        assert rank["replies"] == [[1, 2, 3, 4, 5, 6, 7], [1], [1, 2, 3]]
    assert sum(rank["own"] for rank in found) == 8  # each was asked of one rank only


def test_ranks_that_hold_one_engine_ask_it_the_same(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    for rank in ranks[1]:
        assert rank["of_one_engine"] == [1, 2, 3]
        assert rank["parts_asked"] == 3


def test_free_rollouts_are_shared_out_and_all_ranks_get_all(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert [rank["free"] for rank in ranks[1]] == [[1, 2, 3, 4, 5]] * 2
    assert sorted(rank["played"] for rank in ranks[1]) == [2, 3]


def test_engines_get_whole_weights(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    assert [rank["same_weights"] for rank in ranks[1]] == [True, True]
    weights = len(list(small_model().parameters()))
    assert [rank["clients_weights"] for rank in ranks[1]] == [weights, 0]


def test_ranks_that_ask_different_things_are_told(
    ranks: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert all("not in lockstep" in rank["out_of_step"] for rank in ranks[1])


def test_shares_are_in_order_and_of_about_equal_tokens() -> None:
    asked = [Request((1,) * n, 10, (n,)) for n in (500, 490, 20, 20, 20, 480, 470)]
    parts = shares(asked, 3)
    assert [request for part in parts for request in part] == asked
    tokens = [sum(len(r.prompt_ids) + r.max_tokens for r in part) for part in parts]
    assert max(abs(one - sum(tokens) / 3) for one in tokens) < 510  # the largest request
    assert [len(part) for part in shares(asked[:1], 4)].count(1) == 1
