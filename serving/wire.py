"""The JSON of OpenAI's API, as this project sends and reads it: no network here.

Two forms. With a tokenizer (our own pool) a chat is rendered to token ids here and sent to
/completions, so that the server tokenizes nothing: strings in a document that look like
control tokens stay text, and the ids are exactly those that were counted. Without one (any
other endpoint) the messages go to /chat/completions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import (
    HarnessError,
    PromptTooLong,
    RequestFailed,
    RequestRejected,
)
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
EXTRA_FIELDS = ("top_k", "repetition_penalty")
"""Sampling fields that vLLM and its kin know, and OpenAI's own endpoints refuse."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered. Ids and logprobs are there if they were asked for."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt_ids: tuple[int, ...] | None
    reply_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None


def request_body(
    model: str,
    prompt: Sequence[Message] | list[int],
    *,
    max_tokens: int,
    sampling: Sampling,
    plain_openai: bool,
    with_ids: bool,
) -> dict[str, Any]:
    """The JSON body: token ids go to /completions, messages to /chat/completions."""
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
    as_ids = bool(prompt) and isinstance(prompt[0], int)
    if as_ids:
        body["prompt"] = prompt
    else:
        body["messages"] = [asdict(m) for m in prompt if isinstance(m, Message)]
    body["temperature"] = sampling.temperature
    body["top_p"] = sampling.top_p
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if not plain_openai:
        for field in EXTRA_FIELDS:
            body[field] = getattr(sampling, field)
    if with_ids:
        body["return_token_ids"] = True
        # Zero alternatives: only the sampled token's own logprob.
        body |= {"logprobs": 0} if as_ids else {"logprobs": True, "top_logprobs": 0}
    return body


def read_reply(data: Any, *, where: str, with_ids: bool) -> Reply:
    """Reads a reply of either form.

    Raises:
        RequestFailed: the JSON is not a reply, or lacks the ids that were asked for.
    """
    try:
        choice = data["choices"][0]
        chat = "message" in choice
        text = (choice["message"]["content"] if chat else choice["text"]) or ""
        usage = data.get("usage") or {}
        prompt_ids = choice.get("prompt_token_ids") or data.get("prompt_token_ids")
        reply_ids = choice.get("token_ids")
        logprobs = _logprobs(choice.get("logprobs"), chat=chat)
        reply = Reply(
            text=text,
            finish_reason=choice.get("finish_reason") or "",
            prompt_tokens=int(usage.get("prompt_tokens", 0)),
            completion_tokens=int(usage.get("completion_tokens", 0)),
            prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
            reply_ids=None if reply_ids is None else tuple(reply_ids),
            logprobs=logprobs,
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RequestFailed(
            f"{where} answered 200 with JSON that is no completion "
            f"({type(error).__name__}: {error}): {str(data)[:300]}"
        ) from error
    if with_ids and (reply.prompt_ids is None or reply.reply_ids is None or logprobs is None):
        raise RequestFailed(
            f"{where} sent no token ids or logprobs, which training needs. Expected "
            "return_token_ids and logprobs as vLLM 0.29.0 sends them."
        )
    if reply.reply_ids is not None and with_ids and len(reply.reply_ids) != len(logprobs or ()):
        raise RequestFailed(
            f"{where} sent {len(reply.reply_ids)} token ids with {len(logprobs or ())} logprobs"
        )
    return reply


def _logprobs(field: Any, *, chat: bool) -> tuple[float, ...] | None:
    if field is None:
        return None
    if chat:
        return tuple(float(entry["logprob"]) for entry in field["content"] or ())
    return tuple(float(value) for value in field["token_logprobs"])


def error_text(body: str) -> str:
    """The message inside an error reply, of any of the shapes in use, shortened."""
    try:
        data = json.loads(body)
    except ValueError:
        return body.strip()[:500] or "(empty body)"
    for key in ("error", "detail", "message"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return (data if isinstance(data, str) else json.dumps(data))[:500]


def refusal(
    status: int, body: str, *, where: str, key_env: str, plain_openai: bool
) -> HarnessError:
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
    if status in (400, 422) and not plain_openai and _refuses_extra_fields(body):
        return RequestRejected(
            f"{said} It does not know {' or '.join(EXTRA_FIELDS)}, which vLLM takes: "
            "add --plain-openai to leave them out."
        )
    return RequestRejected(said)


def _refuses_extra_fields(body: str) -> bool:
    return any(field in body for field in EXTRA_FIELDS) or bool(_UNKNOWN_FIELD.search(body))
