"""Checks that ask the server: does it do what a sweep asks of it?

A probe asks as the sweep will: the same client, dialect, limits and budget. Its replies are short,
and one of its prompts is as long as the longest of the sweep.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.doctor.findings import Finding
from core.errors import BadReply, PromptTooLong, RequestFailed, RequestRejected
from core.tokens import Tokenizer
from core.types import GREEDY, Message, Sampling
from serving.api.wire import Asked, Dialect, Reply
from serving.client import Client

HOT = Sampling(temperature=2.0, top_p=1.0)
"""As hot as OpenAI's servers allow: 16 tokens drawn so are hardly ever drawn twice."""

SHORT_TOKENS, LONG_TOKENS = 16, 64
HOT_TIMES, GREEDY_TIMES = 3, 3
SLACK_TOKENS = 2
"""Where a content meets the template, a token more or less."""

STORY = "Tell a story about a lighthouse, a goat and a clock. Begin at once."
COUNT = "Count from 1 to 500, all numbers, with spaces between. Begin at once."
REPEAT = "Write the word river sixty times, with spaces between: " + "river " * 12
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


@dataclass(slots=True)
class Server:
    """A model at an endpoint. `turn_tokens`: of the sweep's longest turn, prompt and reply; None:
    not known. `window_tokens` and `stretched` (by YaRN) are the catalogue's. `replies`: what is
    asked once for several probes."""

    client: Client
    model: str
    tokenizer: Tokenizer
    sampling: Sampling
    turn_tokens: int | None = None
    window_tokens: int | None = None
    stretched: bool = False
    replies: dict[str, Reply] = field(default_factory=dict)

    async def ask(
        self,
        content: str,
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int = SHORT_TOKENS,
        dialect: Dialect | None = None,
        with_ids: bool = False,
    ) -> Reply:
        """One reply to one message of a user."""
        asked = Asked(max_tokens, with_ids=with_ids)
        return await self.client.probe(self.model, content, asked, sampling, dialect)

    def content_tokens(self, content: str) -> int:
        """Tokens of a content, by our tokenizer."""
        return self.tokenizer.count(content)

    @property
    def dialect(self) -> Dialect:
        """How the sweep will ask."""
        return self.client.options.dialect


@dataclass(frozen=True, slots=True)
class Probe:
    """A check that asks. `requests`: how many at most; `short`: whether every sweep begins with
    it."""

    name: str
    requests: int
    run: Callable[[Server], AsyncIterator[Finding]]
    short: bool = True


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


async def story(server: Server) -> Reply:
    """The greedy reply to STORY, asked once."""
    if "story" not in server.replies:
        server.replies["story"] = await server.ask(STORY)
    return server.replies["story"]


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
        much = replace(GREEDY, repetition_penalty=2.0)
        two = _said(await server.ask(REPEAT, much, dialect="vllm"))
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


PROBES: Sequence[Probe] = (
    Probe("model", 2, model),
    Probe("tokens", 2, tokens),
    Probe("cut", 1, cut),
    Probe("max_tokens", 1, max_tokens),
    Probe("temperature", HOT_TIMES + GREEDY_TIMES - 1, temperature),
    Probe("top_p", HOT_TIMES, top_p, short=False),
    Probe("repetition_penalty", 3, repetition_penalty),
    Probe("seed", 2, seed, short=False),
)


def probes(*, short: bool) -> list[Probe]:
    """Those to run; a sweep begins with the short ones."""
    return [probe for probe in PROBES if probe.short or not short]


def requests(*, short: bool) -> int:
    """How many requests they take at most."""
    return sum(probe.requests for probe in probes(short=short))


def said_first(longest: Mapping[str, int], *, short: bool) -> str:
    """What the probes of models will ask, before they do: `longest` turns in tokens, by model."""
    count = len(longest) * requests(short=short)
    return (
        f"at most {count} requests see whether the server does as it is asked, all short but "
        f"{len(longest)} of up to {max(longest.values()):,} tokens"
    )


async def examine(server: Server, *, short: bool) -> list[Finding]:
    """All that the probes find. Nothing more is asked where the model itself is not there.

    Raises:
        HarnessError: the server cannot be reached.
    """
    first, *rest = probes(short=short)
    found = await _run(first, server)
    if not any(finding.check in ("model", "request") for finding in found):
        # One after the other: greedy replies are compared, and batches change them.
        for probe in rest:
            found += await _run(probe, server)
    return [replace(finding, model=server.model) for finding in found]


async def _run(probe: Probe, server: Server) -> list[Finding]:
    try:
        return [finding async for finding in probe.run(server)]
    except (RequestRejected, PromptTooLong, BadReply) as error:
        change = "Change the flags or the server until a request of the sweep's form is answered"
        return [Finding("request", "refused", f"{probe.name}: {error}", change)]
