"""An endpoint that does as it is asked, but for the faults planted in it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from benchmarks.doctor.prompt_probes import WORD
from core.tokens import Tokenizer
from core.types import Message
from tests.serving.scripted import Answer, Asked, ScriptedServer, error, reply

VOCABULARY = ("river", "goat", "clock", "light", "house", "storm", "boat", "sand")


@dataclass
class Vendor:
    """`window`: tokens, beyond which it refuses; `cut_to`: tokens that it keeps of a prompt, from
    its end; `system`: a system prompt of its own; `blind`: it does not see the beginning."""

    tokenizer: Tokenizer
    name: str = "m"
    answers_as: str | None = None
    told_window: int | None = 100_000
    window: int = 100_000
    cut_to: int | None = None
    system: str = ""
    spelling: str = "user"
    chars_per_token: float | None = None
    obeys_max_tokens: bool = True
    fixed_temperature: float | None = None
    obeys_top_p: bool = True
    obeys_seed: bool = True
    penalty: float | None = None
    own_penalty: float = 1.0
    blind: bool = False
    knows_extra_fields: bool = True
    tells_usage: bool = True
    batches: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    _draws: Iterator[int] = field(default_factory=count)

    def answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return reply({"data": [{"id": self.name, "max_model_len": self.told_window}]})
        body = asked.body
        self.asked.append(body)
        if not self.knows_extra_fields and "repetition_penalty" in body:
            return error(400, "Unrecognized request argument supplied: repetition_penalty")
        if body["model"] != self.name:
            return error(404, "no such model")
        return self._reply(body)

    def _reply(self, body: dict[str, Any]) -> Answer:
        content = body["messages"][-1]["content"]
        ids = self.tokenizer.render_chat([Message("user", content)])
        if self.spelling != "user":
            ids = [ids[1], *ids[1:]]
        used = len(ids) + (len(self.system) and self.tokenizer.count(self.system))
        if self.chars_per_token:
            used = int(len(content) / self.chars_per_token)
        most = body.get("max_tokens") or body["max_completion_tokens"]
        if used + most > self.window:
            return error(400, f"This model's maximum context length is {self.window} tokens.")
        seen = content
        if self.cut_to is not None and used > self.cut_to:
            seen, used = content[-self.cut_to :], self.cut_to
        words = self._words(body, seen)[: most if self.obeys_max_tokens else None]
        choice: dict[str, Any] = {
            "message": {"content": " ".join(words)},
            "finish_reason": "length",
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": [1], "logprobs": {"content": [{"logprob": -0.1}]}}
            choice["prompt_token_ids"] = ids
        data: dict[str, Any] = {"choices": [choice], "model": self.answers_as or self.name}
        if self.tells_usage:
            data["usage"] = {"prompt_tokens": used, "completion_tokens": len(words)}
        return reply(data)

    def _words(self, body: dict[str, Any], seen: str) -> list[str]:
        if "secret word" in seen[-200:]:
            return [WORD] if WORD in seen and not self.blind else ["goat"]
        heat = body.get("temperature", 1.0)
        if self.fixed_temperature is not None:
            heat = self.fixed_temperature
        drawn: object = "greedy"
        if heat > 0 and (body.get("top_p", 1.0) > 0.01 or not self.obeys_top_p):
            fixed = self.obeys_seed and body.get("seed")
            drawn = body["seed"] if fixed else next(self._draws)
        elif self.batches:
            drawn = next(self._draws) % 2
        penalty = self.penalty or body.get("repetition_penalty", self.own_penalty)
        digest = hashlib.sha256(f"{seen}/{drawn}/{penalty}".encode()).digest()
        return [VOCABULARY[byte % 8] for byte in digest]

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address, while it answers in a thread."""
        server = ScriptedServer(self.answer)
        started, stop = threading.Event(), threading.Event()

        async def serve() -> None:
            async with server.running():
                started.set()
                await asyncio.to_thread(stop.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        started.wait()
        try:
            yield server.url
        finally:
            stop.set()
            thread.join()
