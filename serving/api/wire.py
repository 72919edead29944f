"""The JSON of OpenAI's API, as this project sends and reads it: no network here.

Two forms. With a tokenizer (our own pool) a chat is rendered to token ids here and sent to
/completions, so that the server tokenizes nothing: strings in a document that look like
control tokens stay text, and the ids are exactly those that were counted. Without one (any
other endpoint) the messages go to /chat/completions.

What comes back was written by others: it is checked here, once, against what was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.errors import BadReply, HarnessError, PromptTooLong, RequestFailed, RequestRejected
from core.names import explained
from core.types import Message, Sampling

_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|max_model_len|maximum model length"
    r"|context window|prompt is too long|too many tokens",
    re.IGNORECASE,
)
_UNKNOWN_FIELD = re.compile(
    r"(unrecognized|unknown|unexpected|unsupported|extra|not permitted|not supported)[^.]{0,60}"
    r"(argument|parameter|field|input|propert)"
    r"|(argument|parameter|field|input|propert)[^.]{0,60}"
    r"(unrecognized|unknown|unexpected|unsupported|extra|not permitted|not supported)",
    re.IGNORECASE,
)
Dialect = Literal["vllm", "openai", "openai_reasoning"]
"""`openai` has no EXTRA_FIELDS. `openai_reasoning` has max_completion_tokens for max_tokens, and
takes no temperature and no top_p either: its models draw in their own way."""

EXTRA_FIELDS = ("top_k", "repetition_penalty")
"""Sampling fields that vLLM and its kin know, and OpenAI's own endpoints refuse."""


COMPLETION_TOKENS = "max_completion_tokens"
"""What OpenAI's reasoning models call the budget of a reply, thoughts included."""

CHARS_PER_TOKEN = 4096
"""More than the longest token of any vocabulary holds: a longer reply was not asked for."""

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reply is checked against. `prompt_tokens` None: we did not count them. `whole`: the
    reply must not end before `max_tokens` (vLLM's ignore_eos)."""

    max_tokens: int
    prompt_tokens: int | None = None
    with_ids: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Offered:
    """A model that a server offers; its window in tokens, where the server tells it."""

    name: str
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered. `reasoning`: thoughts that it tells apart from the text; `model`:
    who answered, by its own word. Ids and logprobs are there if they were asked for."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt_ids: tuple[int, ...] | None
    reply_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    reasoning: str = ""
    model: str = ""


_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Json(BaseModel):
    """Types as they stand in the JSON, none made of another; fields of no interest may be there."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Usage(_Json):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Message(_Json):
    """`reasoning_content`: DeepSeek, SGLang, llama.cpp; `reasoning`: vLLM, OpenRouter, Ollama."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not {"content", "reasoning_content", "reasoning"} & self.model_fields_set:
            raise ValueError("has neither content nor reasoning")
        return self


class _Logprob(_Json):
    logprob: float


class _Logprobs(_Json):
    token_logprobs: tuple[float, ...] | None = None  # of a completion
    content: tuple[_Logprob, ...] | None = None  # of a chat

    def values(self) -> tuple[float, ...]:
        if self.token_logprobs is not None:
            return self.token_logprobs
        return tuple(entry.logprob for entry in self.content or ())


class _Choice(_Json):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[_Count, ...] | None = None
    prompt_token_ids: tuple[_Count, ...] | None = None


class _Completion(_Json):
    choices: tuple[_Choice, ...] = Field(min_length=1)
    usage: _Usage | None = None
    model: str | None = None
    prompt_token_ids: tuple[_Count, ...] | None = None


class _Model(_Json):
    id: str
    max_model_len: int | None = None  # vLLM, SGLang


class _Models(_Json):
    data: tuple[_Model, ...]


def request_body(
    model: str,
    prompt: Sequence[Message] | list[int],
    asked: Asked,
    sampling: Sampling,
    *,
    dialect: Dialect,
) -> bytes:
    """The JSON body: token ids go to /completions, messages to /chat/completions."""
    reasoning = dialect == "openai_reasoning"
    budget = COMPLETION_TOKENS if reasoning else "max_tokens"
    body: dict[str, Any] = {"model": model, budget: asked.max_tokens}
    as_ids = bool(prompt) and isinstance(prompt[0], int)
    if as_ids:
        body["prompt"] = prompt
    else:
        body["messages"] = [
            {"role": m.role, "content": m.content} for m in prompt if isinstance(m, Message)
        ]
    if not reasoning:
        body["temperature"] = sampling.temperature
        body["top_p"] = sampling.top_p
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if dialect == "vllm":
        for field in EXTRA_FIELDS:
            body[field] = getattr(sampling, field)
    if asked.whole:
        body["ignore_eos"] = True
    if asked.with_ids:
        body["return_token_ids"] = True
        # Zero alternatives: only the sampled token's own logprob.
        body |= {"logprobs": 0} if as_ids else {"logprobs": True, "top_logprobs": 0}
    return msgspec.json.encode(body)


def read_reply(body: bytes, asked: Asked, *, where: str) -> Reply:
    """Reads a reply of either form.

    Raises:
        BadReply: it is no completion, or not one of what was asked.
        RequestFailed: it lacks the ids that were asked for.
    """
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        raise _bad(body, error, "completion", where) from error
    choice, usage = completion.choices[0], completion.usage or _Usage()
    text = choice.text if choice.message is None else choice.message.content or ""
    if text is None:
        raise BadReply(f"{where} answered 200 with a choice of neither text nor message")
    if len(text) > asked.max_tokens * CHARS_PER_TOKEN:
        raise BadReply(
            f"{where} sent {len(text):,} characters, expected at most {asked.max_tokens:,} tokens"
        )
    counted = asked.prompt_tokens
    if counted is not None and usage.prompt_tokens not in (0, counted):
        raise BadReply(
            f"{where} read {usage.prompt_tokens:,} prompt tokens, it was sent {counted:,}: "
            "it cuts prompts, or adds to them"
        )
    logprobs = None if choice.logprobs is None else choice.logprobs.values()
    prompt_ids = choice.prompt_token_ids or completion.prompt_token_ids
    if asked.with_ids:
        _check_ids(prompt_ids, choice.token_ids, logprobs, where)
    return Reply(
        text=text,
        finish_reason=visible(choice.finish_reason or "")[:40],
        prompt_tokens=usage.prompt_tokens or counted or 0,
        completion_tokens=usage.completion_tokens,
        prompt_ids=prompt_ids,
        reply_ids=choice.token_ids,
        logprobs=logprobs,
        reasoning=_reasoning(choice.message),
        model=visible(completion.model or "")[:200],
    )


def _reasoning(message: _Message | None) -> str:
    return "" if message is None else message.reasoning_content or message.reasoning or ""


def read_models(body: bytes, *, where: str) -> list[Offered]:
    """A list of models. Raises BadReply."""
    try:
        found = _Models.model_validate_json(body).data
        return [Offered(model.id, model.max_model_len) for model in found]
    except ValidationError as error:
        raise _bad(body, error, "list of models", where) from error


def _bad(body: bytes, error: ValidationError, what: str, where: str) -> BadReply:
    begun = body[:200].decode("utf-8", errors="replace")
    hint = "" if begun.lstrip().startswith("{") else " Does the URL end in /v1?"
    return BadReply(
        f"{where} answered 200 with something that is no {what}: "
        f"{visible(explained(error))[:300]}. It begins: {visible(begun)!s}{hint}"
    )


def _check_ids(
    prompt_ids: tuple[int, ...] | None,
    reply_ids: tuple[int, ...] | None,
    logprobs: tuple[float, ...] | None,
    where: str,
) -> None:
    if prompt_ids is None or reply_ids is None or logprobs is None:
        raise RequestFailed(
            f"{where} sent no token ids or logprobs, which training needs. Expected "
            "return_token_ids and logprobs as vLLM 0.29.0 sends them."
        )
    if len(reply_ids) != len(logprobs):
        raise RequestFailed(
            f"{where} sent {len(reply_ids)} token ids with {len(logprobs)} logprobs"
        )


def visible(text: str) -> str:
    """`text` with what a terminal would obey, or not show, written as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def error_text(body: str) -> str:
    """The message inside an error reply, of any of the shapes in use, shortened."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return visible(body.strip()[:500]) or "(empty body)"
    for key in ("error", "detail", "message"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return visible((data if isinstance(data, str) else json.dumps(data))[:500])


def refusal(status: int, body: str, *, where: str, key_env: str, dialect: Dialect) -> HarnessError:
    """The error for a status that is not sent again: 4xx other than 429, and redirects."""
    text = error_text(body)
    said = f"{where} answered {status}: {text}"
    if status in (400, 413, 422) and _TOO_LONG.search(body):
        return PromptTooLong(said)
    if status in (401, 403):
        return RequestRejected(f"{said} Is the environment variable {key_env} set to a valid key?")
    if status == 404:
        return RequestRejected(f"{said} Check the URL's path and the model's name.")
    if 300 <= status < 400:
        return RequestRejected(f"{said} Give the URL that it redirects to.")
    if status in (400, 422) and dialect != "openai_reasoning" and COMPLETION_TOKENS in body:
        return RequestRejected(
            f"{said} It is one of OpenAI's reasoning models: add --openai-reasoning."
        )
    if status in (400, 422) and dialect == "vllm" and _refuses_extra_fields(body):
        return RequestRejected(
            f"{said} It does not know {' or '.join(EXTRA_FIELDS)}, which vLLM takes: "
            "add --plain-openai to leave them out."
        )
    return RequestRejected(said)


def _refuses_extra_fields(body: str) -> bool:
    return any(field in body for field in EXTRA_FIELDS) or bool(_UNKNOWN_FIELD.search(body))
