"""Through the real thing: vLLM behind Ray Serve, asked as an endpoint; faults are planted in what
reaches it, so that vLLM itself does what a server set up wrongly would do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.doctor.findings import Finding
from benchmarks.doctor.probes import examine
from benchmarks.doctor.server import Server
from core.tokens import Tokenizer
from serving.api.connection import Request
from serving.client import Client, ClientOptions
from serving.pool import Pool
from tests.conftest import CHAT_TEMPLATE

pytestmark = [pytest.mark.pool]


class Misled(Client):
    """Sends other values than it is asked to."""

    def __init__(self, options: ClientOptions, **instead: Any) -> None:
        super().__init__(options)
        self.instead = instead

    def _request(self, *asked: Any) -> Request:
        request = super()._request(*asked)
        body = {**json.loads(request.body or b"{}"), **self.instead}
        return replace(request, body=json.dumps(body).encode())


async def found(pool: Pool, instead: dict[str, Any] | None = None, **differs: Any) -> list[Finding]:
    """What the doctor finds at the pool, for a model and settings that may differ from it."""
    entry = pool.entry
    async with Misled(ClientOptions(pool.base_url), **(instead or {})) as client:
        known = {
            "model": entry.name,
            "tokenizer": Tokenizer.load(entry.location),
            "turn_tokens": entry.window_tokens,
            "window_tokens": entry.window_tokens,
        }
        server = Server(client, sampling=entry.sampling, **{**known, **differs})
        return await examine(server, short=False)


async def test_a_good_server_gets_no_word(pool: Pool) -> None:
    assert await found(pool) == []


async def test_a_wrong_model_is_found(pool: Pool) -> None:
    assert [f.check for f in await found(pool, model="somebody")] == ["model"]


async def test_another_tokenizer_is_found(pool: Pool, tokenizer: Tokenizer) -> None:
    assert "tokenizer" in [f.check for f in await found(pool, tokenizer=tokenizer)]


async def test_a_wrong_template_is_found(pool: Pool) -> None:
    own = Tokenizer.load(pool.entry.location)
    spec = {**own._spec}
    system = "<|im_start|>system\nYou are a goat.<|im_end|>\n"
    other = Tokenizer(spec, system + CHAT_TEMPLATE, "other")
    assert "template" in [f.check for f in await found(pool, tokenizer=other)]


async def test_a_window_that_is_too_small_is_found(pool: Pool) -> None:
    assert "window" in [f.check for f in await found(pool, turn_tokens=4096)]


async def test_yarn_that_is_off_is_found(pool: Pool) -> None:
    findings = await found(pool, stretched=True, window_tokens=4 * pool.entry.window_tokens)
    assert "yarn" in [f.check for f in findings]


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "prompt cut from the left": ({"truncate_prompt_tokens": 256}, "cut"),
    "max_tokens ignored": ({"max_tokens": 40, "ignore_eos": True}, "max_tokens"),
    "always greedy": ({"temperature": 0.0}, "temperature"),
    "never greedy": ({"temperature": 2.0, "top_p": 1.0}, "temperature"),
    "penalty from generation_config": ({"repetition_penalty": 1.3}, "repetition_penalty"),
    "top_p ignored": ({"top_p": 1.0}, "top_p"),
}


@pytest.mark.parametrize(("instead", "check"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_planted_fault_is_found(pool: Pool, instead: dict[str, Any], check: str) -> None:
    assert check in [f.check for f in await found(pool, instead) if f.severity == "refused"]
