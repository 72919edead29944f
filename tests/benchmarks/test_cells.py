"""Which cells a suite and its flags come to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.cells import Choice, cells_of
from benchmarks.suite import CellBlock, Suite
from core.errors import UsageError

Key = tuple[str, int, str, str, int]


def suite(*blocks: dict[str, Any], **own: Any) -> Suite:
    common = {"tasks": ("niah",), "lengths": (1024, 2048), "samples": 4}
    cells = tuple(CellBlock(**(common | block)) for block in blocks)
    return Suite(name="s", summary="", cells=cells, **own)


PAIRED = suite(
    {"models": ("base",), "methods": ("memagent",)},
    {"models": ("gru",), "methods": ("gru_mem", "gru_mem@exit_gate=false"), "lengths": (1024,)},
    {"models": ("gru",), "methods": ("gru_mem",), "tasks": ("vt",), "samples": 2},
)


EVERYTHING = Choice()


def keys(of: Suite, choice: Choice = EVERYTHING) -> list[Key]:
    return [(c.task, c.length, c.method, c.model, c.samples) for c in cells_of(of, choice)]


def test_blocks_pair_models_with_methods() -> None:
    assert keys(PAIRED) == [
        ("niah", 1024, "memagent", "base", 4),
        ("niah", 2048, "memagent", "base", 4),
        ("niah", 1024, "gru_mem", "gru", 4),
        ("niah", 1024, "gru_mem@exit_gate=false", "gru", 4),
        ("vt", 1024, "gru_mem", "gru", 2),
        ("vt", 2048, "gru_mem", "gru", 2),
    ]


def test_a_block_without_its_own_takes_the_suites() -> None:
    shared = suite({"lengths": (1024,)}, {"models": ("b",)}, models=("a",), methods=("memagent",))
    assert [(n, model) for _, n, _, model, _ in keys(shared)] == [
        *((1024, "a"), (1024, "b"), (2048, "b"))
    ]


def test_pairs_are_blocks_of_one_model_and_one_method() -> None:
    ways = (("base", "memagent"), ("gru", "gru_mem"), ("gru", "gru_mem@exit_gate=false"))
    pairs = suite({"pairs": ways}, {"lengths": (4096,)}, models=("a",), methods=("full_context",))
    single = suite(
        *({"models": (model,), "methods": (method,)} for model, method in ways),
        {"models": ("a",), "methods": ("full_context",), "lengths": (4096,)},
    )
    for choice in (
        EVERYTHING,
        Choice(models=("gru",)),
        Choice(methods=("gru_mem", "memagent"), lengths=(512, 1024)),
        Choice(models=("gru", "mine"), methods=("retrieval",)),
    ):
        assert keys(pairs, choice) == keys(single, choice)
    assert [(model, method) for _, _, method, model, _ in keys(pairs, Choice(lengths=(1024,)))] == [
        *ways
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(models=("base",)), {("niah", "memagent", "base")}),
        (Choice(methods=("gru_mem",)), {("niah", "gru_mem", "gru"), ("vt", "gru_mem", "gru")}),
        (Choice(tasks=("vt",)), {("vt", "gru_mem", "gru")}),
        (
            Choice(models=("mine",), tasks=("niah",)),
            {("niah", m, "mine") for m in ("memagent", "gru_mem", "gru_mem@exit_gate=false")},
        ),
        (Choice(models=("base",), methods=("full_context",)), {("niah", "full_context", "base")}),
    ],
)
def test_what_a_suite_has_is_chosen_and_what_it_has_not_is_put_into_every_block(
    choice: Choice, expected: set[tuple[str, str, str]]
) -> None:
    assert {(task, method, model) for task, _, method, model, _ in keys(PAIRED, choice)} == expected


def test_a_new_length_goes_to_every_block_once() -> None:
    pocket = suite({}, {"lengths": (4096,), "samples": 2}, models=("a",), methods=("memagent",))
    assert keys(pocket, Choice(lengths=(512, 4096))) == [
        ("niah", 512, "memagent", "a", 4),
        ("niah", 4096, "memagent", "a", 2),
    ]


def test_flags_that_leave_nothing_are_told_what_is_paired() -> None:
    with pytest.raises(UsageError, match=r"base with memagent; gru with gru_mem, gru_mem@exit"):
        cells_of(PAIRED, Choice(models=("base",), methods=("gru_mem",)))


def test_a_block_without_a_model_and_a_cell_named_twice_are_refused() -> None:
    with pytest.raises(ValidationError, match="number 2 has no models, nor has the suite"):
        suite({"models": ("a",)}, {}, methods=("memagent",))
    with pytest.raises(ValidationError, match="twice"):
        suite({}, {"lengths": (2048,)}, models=("a",), methods=("memagent",))
    with pytest.raises(ValidationError, match="twice"):
        suite({"pairs": (("a", "memagent"), ("a", "memagent"))})
