"""Probes of what becomes of a prompt: is it the model, does it count and template as we do, does it
read all of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from benchmarks.doctor.findings import Finding
from benchmarks.doctor.server import STORY, Server, story
from core.errors import PromptTooLong, RequestFailed
from core.types import Message

LONG_TOKENS = 64
SLACK_TOKENS = 2
"""Where a content meets the template, a token more or less."""

MIXED = (
    "Grüße, 東京; naïve façade — 3.14159 and 1,234,567. def f(x): return {'a': [x ** 2]}\n"
    "https://example.org/a?b=c#d  VAR XKQZT = 48213. Antidisestablishmentarianism!\n"
)
_VERSION = re.compile(r"-\d{4}|[:@]|\.gguf")
"""What may follow a model's name in a reply."""

WORD = "ZEBRA-4471"
NEEDLE = f"The secret word is {WORD}. Remember it.\n\n"
FILLER = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
)
ASK_NEEDLE = "\nWhat is the secret word from the beginning of this text? Say the word alone."


async def model(server: Server) -> AsyncIterator[Finding]:
    """The model is offered, its window is long enough, and its name comes back in replies."""
    offered = await server.client.offered()
    here = {one.name: one for one in offered}
    if offered and server.model not in here:
        yield Finding(
            *("model", "refused"),
            f"{server.client.where} does not serve {server.model!r}; it serves: "
            f"{', '.join(here)[:500]}",
            "Name one of these with --models",
        )
        return
    told = here[server.model].window_tokens if offered else None
    wanted = server.window_tokens if server.stretched else server.turn_tokens
    if told is not None and wanted is not None and told < wanted:
        name = "yarn" if server.stretched else "window"
        yield Finding(
            *(name, "refused"),
            f"the server's window (max_model_len) is {told:,} tokens, {wanted:,} are needed",
            "Start it with YaRN as the catalogue has it, and a larger --max-model-len"
            if server.stretched
            else "Start it with a larger window, or take smaller chunks or budgets",
        )
    answered = (await story(server)).model
    # Azure answers by the model's name, and is asked by the deployment's.
    if answered and offered and not same_model(answered, server.model):
        yield Finding(
            *("model", "refused"),
            f"asked for {server.model!r}, {answered!r} answered",
            "Name the model that is meant to answer",
        )


def same_model(one: str, other: str) -> bool:
    """`gpt-x` answers as `gpt-x-2026-01-01`, `vendor/x:free` as `x`, `x` as `/models/x.gguf`."""
    names = (name.lower().rpartition("/")[2] for name in (one, other))
    short, long = sorted(names, key=len)
    return long.startswith(short) and (
        long == short or _VERSION.match(long, len(short)) is not None
    )


async def tokens(server: Server) -> AsyncIterator[Finding]:
    """The server counts a text as we do, and writes the same chat template around it."""
    one, two = (await story(server)).prompt_tokens, await server.ask(STORY + MIXED, max_tokens=1)
    if not (one and two.prompt_tokens):
        yield Finding(
            *("tokenizer", "noted"),
            "the server tells no token counts, so chunks and templates cannot be compared",
            "Turn its usage reports on",
        )
        return
    ours = server.content_tokens(STORY + MIXED) - server.content_tokens(STORY)
    if abs(two.prompt_tokens - one - ours) > SLACK_TOKENS:
        yield Finding(
            *("tokenizer", "refused"),
            f"a text of {ours} tokens by {server.tokenizer.name} has {two.prompt_tokens - one} "
            "at the server: chunks and lengths are not in the model's own tokens",
            "Give --tokenizer the folder of the served model's",
        )
        return
    if not server.tokenizer.has_chat_template:
        return
    wanted = len(server.tokenizer.render_chat([Message("user", STORY)]))
    if abs(one - wanted) > SLACK_TOKENS:
        yield _other_template(f"{one - wanted:+} tokens around a message")
    elif difference := await _first_difference(server):
        yield _other_template(difference)


def _other_template(difference: str) -> Finding:
    return Finding(
        *("template", "refused"),
        f"the server's chat template is not the tokenizer's own: {difference}",
        "Start it with the model's own template (and no system prompt), or give --tokenizer the "
        "folder of the template that it has",
    )


async def _first_difference(server: Server) -> str:
    """Where the server tells the ids of a prompt (vLLM does): how they differ from ours."""
    if server.dialect != "vllm":
        return ""
    try:
        reply = await server.ask(STORY, max_tokens=1, with_ids=True)
    except RequestFailed:  # a server that speaks vLLM's dialect and does not tell ids
        return ""
    ours = server.tokenizer.render_chat([Message("user", STORY)])
    theirs = list(reply.prompt_ids or ours)
    pairs = zip(ours, theirs, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        return ""
    return f"token {place} of a prompt is {theirs[place]}, expected {ours[place]}"


async def cut(server: Server) -> AsyncIterator[Finding]:
    """A prompt as long as the sweep's longest is read whole, and fits with its reply."""
    if server.turn_tokens is None:
        return
    each = server.content_tokens(FILLER * 64) / 64
    base = server.content_tokens(NEEDLE + ASK_NEEDLE)
    lines = max(int((server.turn_tokens - base - LONG_TOKENS) / each), 1)
    content = NEEDLE + FILLER * lines + ASK_NEEDLE
    try:
        reply = await server.ask(content, max_tokens=LONG_TOKENS)
    except PromptTooLong as error:
        yield Finding(
            *("window", "refused"),
            f"a prompt of {server.turn_tokens:,} tokens, as the sweep will send, does not fit: "
            f"{error}",
            "Start the server with a larger window, or take smaller chunks or budgets",
        )
        return
    found = WORD.lower() in (reply.text + reply.reasoning).lower()
    sent, read = server.content_tokens(content), reply.prompt_tokens
    if read and read < sent * await _share(server):
        yield Finding(
            *("cut", "refused"),
            f"of a prompt of {sent:,} tokens the server read {read:,}"
            f"{'' if found else ', and it does not find what stood at the beginning'}",
            "Start the server with a larger window, and without truncation",
        )
    elif (not read or server.stretched) and not found:
        name = "yarn" if server.stretched else "cut"
        yield Finding(
            *(name, "refused"),
            f"what stands at the beginning of {sent:,} tokens is not found at their end",
            "See that the server reads prompts whole, with YaRN where the model needs it",
        )


async def _share(server: Server) -> float:
    """How much of our count the server's is at least, with a tokenizer that may be another."""
    one = (await story(server)).prompt_tokens
    ours = server.content_tokens(STORY)
    return 0.98 if abs(one - ours) < 0.5 * ours + 16 else 0.7
