"""A chat that answers from a transformers model in this process: greedy, batched.

For measuring a checkpoint without a server. Requests of concurrent rollouts are gathered
until every rollout waits, then answered in one padded batch with a key-value cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen2ForCausalLM

from core.tokens import Tokenizer
from core.types import Message, Turn

GATHER_S = 0.002


@dataclass(slots=True)
class _Request:
    prompt: list[int]
    max_tokens: int
    reply: asyncio.Future[list[int]]


class GreedyChat:
    """A `core.types.Chat`. Use it as an async context, inside which rollouts run.

    `window`: prompt and reply tokens; a longer prompt raises ValueError, as a server refuses.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", batch: int = 16) -> None:
        self.tokenizer = Tokenizer.load(folder)
        self.device = torch.device(device)
        self.model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.model = self.model.to(self.device).eval()
        self.window = int(self.model.config.max_position_embeddings)
        self.batch = batch
        self.pad, self.end = self.model.config.pad_token_id, self.model.config.eos_token_id
        self._waiting: list[_Request] = []
        self._server: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GreedyChat:
        self._server = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.cancel()

    async def __call__(self, messages: Sequence[Message], *, max_tokens: int, tag: str) -> Turn:
        started = time.monotonic()
        prompt = self.tokenizer.render_chat(messages)
        room = self.window - len(prompt)
        if room < 1:
            raise ValueError(f"prompt of {len(prompt)} tokens in a window of {self.window}")
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt, min(max_tokens, room), future))
        reply = await future
        ended = bool(reply) and reply[-1] == self.end
        return Turn(
            tag=tag,
            messages=tuple(messages),
            reply=self.tokenizer.decode(reply),
            finish_reason="stop" if ended else "length",
            prompt_tokens=len(prompt),
            completion_tokens=len(reply),
            seconds=time.monotonic() - started,
            prompt_ids=tuple(prompt),
            reply_ids=tuple(reply),
        )

    async def _serve(self) -> None:
        """Answer batches for ever; a failed batch fails its requests."""
        while True:
            before = -1
            while len(self._waiting) != before or not self._waiting:
                before = len(self._waiting)
                await asyncio.sleep(GATHER_S)
            taken, self._waiting = self._waiting[: self.batch], self._waiting[self.batch :]
            try:
                replies = await asyncio.to_thread(self._generate, taken)
            except Exception as error:  # noqa: BLE001 - handed to those who wait
                for request in taken:
                    request.reply.set_exception(error)
                continue
            for request, reply in zip(taken, replies, strict=True):
                request.reply.set_result(reply)

    def _generate(self, requests: Sequence[_Request]) -> list[list[int]]:
        """Greedy replies, closing token included. Prompts are padded on the left."""
        pad, end = self.pad, self.end
        longest = max(len(request.prompt) for request in requests)
        budget = max(request.max_tokens for request in requests)
        rows = [[pad] * (longest - len(r.prompt)) + r.prompt for r in requests]
        mask = [[0] * (longest - len(r.prompt)) + [1] * len(r.prompt) for r in requests]
        out = self.model.generate(
            torch.tensor(rows, device=self.device),
            attention_mask=torch.tensor(mask, device=self.device),
            max_new_tokens=budget,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=pad,
        )
        replies: list[list[int]] = []
        for request, row in zip(requests, out[:, longest:].tolist(), strict=True):
            cut = row.index(end) + 1 if end in row else len(row)
            replies.append(row[: min(cut, request.max_tokens)])
        return replies
