"""Probes of how replies are drawn: budget, temperature, top_p, penalty, seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from benchmarks.doctor.findings import Finding
from benchmarks.doctor.server import STORY, Server, story
from core.errors import RequestRejected
from core.types import GREEDY, Sampling
from serving.api.wire import Reply

HOT = Sampling(temperature=2.0, top_p=1.0)
"""As hot as OpenAI's servers allow: 16 tokens drawn so are hardly ever drawn twice."""
HOT_TIMES, GREEDY_TIMES = 3, 3

COUNT = "Count from 1 to 500, all numbers, with spaces between. Begin at once."
REPEAT = "Write the word river sixty times, with spaces between: " + "river " * 12


async def max_tokens(server: Server) -> AsyncIterator[Finding]:
    """A reply ends at its budget."""
    reply = await server.ask(COUNT, max_tokens=8)
    used = reply.completion_tokens
    if not used and reply.finish_reason != "length":
        used = server.content_tokens(reply.text) // 4  # by a tokenizer that may be another
    if used > 8:
        yield Finding(
            *("max_tokens", "refused"),
            f"a reply of at most 8 tokens had {used}",
            "Memories and costs have no bound then: take a server that obeys it",
        )


async def temperature(server: Server) -> AsyncIterator[Finding]:
    """Temperature 0 draws the same, temperature 2 does not."""
    if server.dialect == "openai_reasoning":
        yield Finding(
            *("temperature", "refused"),
            "--openai-reasoning leaves temperature and top_p out: the vendor's own are applied, "
            f"not {server.sampling.temperature:g} and {server.sampling.top_p:g}",
            "These models take no others",
        )
        return
    hot = await _texts(server, HOT, HOT_TIMES)
    if len(set(hot)) == 1:
        yield Finding(
            *("temperature", "refused"),
            f"{HOT_TIMES} replies drawn at temperature 2 are the same: it is not applied",
            "Take a server that applies what is sent",
        )
        return
    cold = [await story(server)] + [await server.ask(STORY) for _ in range(GREEDY_TIMES - 1)]
    different = len({_said(reply) for reply in cold})
    if different == GREEDY_TIMES:
        yield Finding(
            *("temperature", "refused"),
            f"{GREEDY_TIMES} replies drawn at temperature 0 all differ: it is not applied",
            "Take a server that applies what is sent",
        )
    elif different > 1:
        yield Finding(
            *("greedy", "noted"),
            f"{GREEDY_TIMES} greedy replies are {different} different ones",
            "Expected where requests are batched; scores then vary a little from run to run",
        )


async def top_p(server: Server) -> AsyncIterator[Finding]:
    """A nucleus of nearly nothing draws the same at any temperature."""
    if server.dialect == "openai_reasoning":
        return
    narrow = replace(HOT, top_p=0.0001)
    texts = await _texts(server, narrow, HOT_TIMES)
    if len(set(texts)) == HOT_TIMES:
        yield Finding(
            *("top_p", "refused"),
            f"{HOT_TIMES} replies with a top_p of 0.0001 all differ: it is not applied",
            "Take a server that applies what is sent",
        )


async def repetition_penalty(server: Server) -> AsyncIterator[Finding]:
    """The penalty is what is sent, not what the model's generation_config holds."""
    plain = replace(GREEDY, repetition_penalty=1.0)
    try:
        one = _said(await server.ask(REPEAT, plain, dialect="vllm"))
        # A model that is sure of its reply keeps it under any penalty; a reward moves it.
        for penalty in (2.0, 0.5):
            other = replace(GREEDY, repetition_penalty=penalty)
            two = _said(await server.ask(REPEAT, other, dialect="vllm"))
            if one != two:
                break
    except RequestRejected:
        return  # it has no such parameter, and so no default of one
    if one == two and server.dialect == "vllm":
        yield Finding(
            *("repetition_penalty", "refused"),
            "it changes nothing: the server's own default is applied, and not the 1 that is sent",
            "See that its default is 1 (vLLM: --generation-config vllm), or take another server",
        )
    elif server.dialect == "openai" and one != two and _said(await server.ask(REPEAT)) != one:
        yield Finding(
            *("repetition_penalty", "refused"),
            "left out, as --plain-openai does, it is not 1: the model's generation_config rules",
            "Leave --plain-openai out, or start vLLM with --generation-config vllm",
        )


async def seed(server: Server) -> AsyncIterator[Finding]:
    """The same seed draws the same."""
    if server.dialect == "openai_reasoning":
        return
    texts = await _texts(server, replace(HOT, seed=7), 2)
    if len(set(texts)) > 1:
        yield Finding(
            *("seed", "noted"),
            "two replies drawn with one seed differ",
            "A run cannot be drawn again word for word there; its scores stand",
        )


async def _texts(server: Server, sampling: Sampling, times: int) -> list[str]:
    replies = await asyncio.gather(*(server.ask(STORY, sampling) for _ in range(times)))
    return [_said(reply) for reply in replies]


def _said(reply: Reply) -> str:
    return f"{reply.reasoning}\n{reply.text}"
