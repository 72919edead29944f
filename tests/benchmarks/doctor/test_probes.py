"""Each planted fault is found and named; a good server gets no word."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.doctor.findings import Finding, accepted_settings, refuse
from benchmarks.doctor.probes import examine, requests
from benchmarks.doctor.prompt_probes import same_model
from benchmarks.doctor.server import Server
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sampling
from serving.client import Client, ClientOptions
from tests.benchmarks.doctor.vendor import Vendor

TURN = 6000
"""Tokens of the sweep's longest turn."""


async def found(
    vendor: Vendor,
    *,
    short: bool = False,
    turn: int = TURN,
    stretched: bool = False,
    **options: Any,
) -> list[Finding]:
    with vendor.running() as url:
        asked = ClientOptions(url, **options)
        async with Client(asked) as client:
            server = Server(client, "m", vendor.tokenizer, Sampling(), turn, TURN, stretched)
            return await examine(server, short=short)


def names(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.check) for finding in findings]


@pytest.mark.parametrize("options", [{}, {"plain_openai": True}], ids=["vllm", "openai"])
@pytest.mark.parametrize("short", [False, True])
async def test_a_good_server_gets_no_word(
    tokenizer: Tokenizer, short: bool, options: dict[str, bool]
) -> None:
    vendor = Vendor(tokenizer)
    assert await found(vendor, short=short, **options) == []
    assert len(vendor.asked) + 1 <= requests(short=short)


FAULTS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "system prompt of its own": (
        {"system": "You are a helpful goat. " * 4},
        ("refused", "template"),
    ),
    "template of the same length": ({"spelling": "other"}, ("refused", "template")),
    "window told too small": ({"told_window": 4096}, ("refused", "window")),
    "window cut": ({"told_window": None, "window": 4096}, ("refused", "window")),
    "max_tokens ignored": ({"obeys_max_tokens": False}, ("refused", "max_tokens")),
    "always greedy": ({"fixed_temperature": 0.0}, ("refused", "temperature")),
    "never greedy": ({"fixed_temperature": 1.0, "obeys_seed": False}, ("refused", "temperature")),
    "other tokenizer": ({"chars_per_token": 2.5}, ("refused", "tokenizer")),
    "prompt cut from the left": ({"cut_to": 2048}, ("refused", "cut")),
    "prompt cut, no counts": (
        {"cut_to": 2048, "tells_usage": False, "told_window": None},
        ("refused", "cut"),
    ),
    "penalty from generation_config": ({"penalty": 1.05}, ("refused", "repetition_penalty")),
    "other model offered": ({"name": "n"}, ("refused", "model")),
    "other model answers": ({"answers_as": "goat-7b"}, ("refused", "model")),
    "top_p ignored": ({"obeys_top_p": False}, ("refused", "top_p")),
    "fields refused": ({"knows_extra_fields": False}, ("refused", "request")),
    "seeds ignored": ({"obeys_seed": False}, ("noted", "seed")),
    "replies differ by batch": ({"batches": True}, ("noted", "greedy")),
}


@pytest.mark.parametrize(("fault", "expected"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_planted_fault_is_found(
    tokenizer: Tokenizer, fault: dict[str, Any], expected: tuple[str, str]
) -> None:
    findings = await found(Vendor(tokenizer, **fault))
    assert expected in names(findings)
    # What a fault hides others may not be told from; nothing unrelated is refused.
    hidden = {"tokenizer", "cut", "top_p", "greedy", "repetition_penalty", "seed"}
    assert {name for _, name in names(findings)} - hidden <= {expected[1]}
    assert all(finding.found and finding.change for finding in findings)


@pytest.mark.parametrize("fault", [{"told_window": 4096, "window": 4096}, {"blind": True}])
async def test_yarn_that_is_off_at_an_endpoint_is_found(
    tokenizer: Tokenizer, fault: dict[str, Any]
) -> None:
    findings = await found(Vendor(tokenizer, **fault), stretched=True)
    assert ("refused", "yarn") in names(findings)


async def test_a_penalty_of_generation_config_is_found_where_none_is_sent(
    tokenizer: Tokenizer,
) -> None:
    findings = await found(Vendor(tokenizer, own_penalty=1.05), plain_openai=True)
    assert names(findings) == [("refused", "repetition_penalty")]


async def test_a_server_that_knows_no_penalty_has_none_of_its_own(tokenizer: Tokenizer) -> None:
    vendor = Vendor(tokenizer, knows_extra_fields=False)
    assert await found(vendor, plain_openai=True) == []


async def test_openais_reasoning_models_draw_in_their_own_way(tokenizer: Tokenizer) -> None:
    findings = await found(Vendor(tokenizer), openai_reasoning=True)
    assert names(findings) == [("refused", "temperature")]


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("gpt-x", "gpt-x-2026-01-01", True),
        ("vendor/x:free", "vendor/x", True),
        ("qwen", "/models/qwen.gguf", True),
        ("gpt-x", "gpt-x-mini", False),
        ("goat-7b", "goat-72b", False),
    ],
)
def test_names_of_one_model(asked: str, answered: str, same: bool) -> None:
    assert same_model(asked, answered) == same


def test_what_is_refused_ends_the_sweep_unless_it_is_accepted() -> None:
    findings = [
        Finding("cut", "refused", "it cuts", "Do not", "m"),
        Finding("seed", "noted", "no seeds", "Nothing"),
    ]
    with pytest.raises(UsageError, match=r"refused   cut \(m\): it cuts. Do not[^$]*--accept cut"):
        refuse(findings, ())
    refuse(findings, ("cut",))
    refuse(findings[1:], ())


def test_only_checks_can_be_accepted() -> None:
    assert accepted_settings(("temperature",)) == {"temperature": "the temperature is not applied"}
    with pytest.raises(UsageError, match="did you mean temperature"):
        accepted_settings(("temprature",))
