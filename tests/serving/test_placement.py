"""Which replicas fit where."""

from __future__ import annotations

import pytest

from core.errors import UsageError
from serving.catalogue import find_model
from serving.placement import Layout, Node, Share, bundles, plan_layout, share_out, with_engine


def node(cpus: float = 96, gpus: float = 0, memory_gib: float = 500) -> Node:
    return Node("n", cpus, gpus, memory_gib)


@pytest.mark.parametrize(
    ("model", "nodes", "expected"),
    [
        ("pocket-base", [node(2, 0, 20)], Layout(2, on_gpu=False)),
        ("pocket-base", [node(2, 0, 4)], Layout(1, on_gpu=False)),  # memory for one only
        ("pocket-base", [node(64)], Layout(8, on_gpu=False)),  # more than the front end can feed
        ("pocket-base", [node(2, 0, 5), node(3, 0, 9)], Layout(3, on_gpu=False)),
        ("pocket-base", [node(8, 4)], Layout(4, on_gpu=True)),
        ("rl-memagent-14b", [node(gpus=8)], Layout(4, on_gpu=True)),
        ("rl-memagent-14b", [node(gpus=3)] * 3, Layout(3, on_gpu=True)),  # never across nodes
        ("qwenlong-l1-32b", [node(gpus=7)], Layout(1, on_gpu=True)),
        ("qwenlong-l1-32b", [node(gpus=3), node(gpus=4)], Layout(1, on_gpu=True)),
    ],
)
def test_replicas_are_counted_node_by_node(model: str, nodes: list[Node], expected: Layout) -> None:
    assert plan_layout(find_model(model), nodes) == expected


@pytest.mark.parametrize(
    ("model", "nodes", "text"),
    [
        ("qwenlong-l1-32b", [node(gpus=2), node(gpus=3)], "takes 4 GPUs of one node .* have 2, 3"),
        ("rl-memagent-7b", [node(8)], "Ray reports none. Use --ray-address"),
        ("pocket-base", [node(2, 0, 1)], r"4 GiB a replica, the nodes have: 2 CPUs and 1\.0 GiB"),
        ("pocket-base", [node(0)], "the nodes have: 0 CPUs"),
    ],
)
def test_a_machine_too_small_is_a_usage_error(model: str, nodes: list[Node], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        plan_layout(find_model(model), nodes)


def shares(**work: float) -> list[Share]:
    entry = find_model("pocket-base")
    return [Share(entry.model_copy(update={"name": n}), w) for n, w in work.items()]


def counts(wanted: list[Share], nodes: list[Node], taken: int = 0) -> dict[str, int]:
    others = [(find_model("pocket-base"), taken)] if taken else []
    return {name: layout.replicas for name, layout in share_out(wanted, nodes, others).items()}


def test_models_share_the_machine_by_their_work() -> None:
    assert counts(shares(a=1, b=1, c=1), [node(3)]) == {"a": 1, "b": 1, "c": 1}
    assert counts(shares(a=30, b=10, c=10), [node(5)]) == {"a": 3, "b": 1, "c": 1}


def on_gpus(gpus: int, taken: int = 0, **work: float) -> dict[str, int]:
    entry = find_model("rl-memagent-7b")
    wanted = [Share(entry.model_copy(update={"name": n}), w) for n, w in work.items()]
    others = [(entry, taken)] if taken else []
    return {
        name: one.replicas for name, one in share_out(wanted, [node(gpus=gpus)], others).items()
    }


def test_models_come_one_after_another_where_they_would_end_far_apart() -> None:
    # Side by side the first would take 9e9 on one GPU, and 12e9 on all four take 3e9 each.
    assert on_gpus(4, a=9e9, b=9e9, c=9e9) == {"a": 4}
    assert on_gpus(3, a=9e9, b=9e9, c=9e9) == {"a": 1, "b": 1, "c": 1}
    assert on_gpus(4, taken=2, a=9e9, b=9e9) == {"a": 1, "b": 1}, "no empty cluster"
    assert on_gpus(4, a=9e6, b=9e6, c=9e6) == {"a": 2, "b": 1, "c": 1}, "loading takes longer"
    assert counts(shares(a=10e6, b=4e5), [node(2)]) == {"a": 2}
    assert counts(shares(a=2e6, b=4e5), [node(2)]) == {"a": 1, "b": 1}


def test_a_model_that_finds_no_room_waits() -> None:
    assert counts(shares(a=1, b=1, c=9), [node(2)]) == {"a": 1, "b": 1}
    assert counts(shares(c=9), [node(2)], taken=2) == {}
    assert counts(shares(c=9), [node(3)], taken=2) == {"c": 1}


def test_a_replica_of_two_workers_on_cpus_asks_for_two_bundles() -> None:
    entry = find_model("pocket-base")
    assert entry.cpu is not None
    cpu = entry.cpu.model_copy(update={"engine": {"tensor_parallel_size": 2}})
    wide = entry.model_copy(update={"cpu": cpu})
    assert bundles(wide, on_gpu=False) == [{"CPU": 1.0}, {"CPU": 1.0}]
    assert plan_layout(wide, [node(3), node(3)]) == Layout(2, on_gpu=False)


def test_flags_change_the_engine_on_gpus_and_on_cpus() -> None:
    wide = with_engine(find_model("pocket-base"), {"tensor_parallel_size": 2, "max_num_seqs": 8})
    assert wide.cpu is not None
    assert wide.tensor_parallel == wide.cpu.engine["tensor_parallel_size"] == 2
    assert wide.engine["max_num_seqs"] == wide.cpu.engine["max_num_seqs"] == 8
    assert wide.cpu.engine_process == "two"  # the workers are processes
    assert plan_layout(wide, [node(gpus=3)] * 3) == Layout(3, on_gpu=True)
    assert with_engine(find_model("rl-memagent-14b"), {}) == find_model("rl-memagent-14b")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"trust_remote_code": True}, "--engine trust_remote_code: this project sets it itself"),
        ({"tensor_parallel_size": 0}, "got 0, expected a whole number above 0"),
    ],
)
def test_an_engine_argument_that_is_not_the_users_is_refused(
    changes: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        with_engine(find_model("pocket-base"), changes)
