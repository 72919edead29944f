"""The chat of one rollout in a sweep: what is stored is replayed, the rest is asked and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from benchmarks.admission import Admission
from benchmarks.store import Place, Store
from core.rollout import told
from core.types import Message, Sampling, TokenSpan, Turn

Ask = Callable[..., Awaitable[Turn]]
"""`async (messages, *, max_tokens, sampling, tag) -> Turn`, a client bound to a model."""

CHARS_PER_TOKEN = 3.5
"""English text in current vocabularies; only the weight of a request hangs on it."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How the samples of a model are asked. `on_turn` is told each turn that the server answered
    and the store holds."""

    ask: Ask
    sampling: Sampling
    admission: Admission
    on_turn: Callable[[Turn], None]


class StoredChat:
    """Implements `core.types.Chat` for a draw of a sample, at its place in the store.

    A method asks the same turns when it gets the same replies, so a resumed rollout runs
    from its beginning: each request whose hash equals the stored one is answered from the
    store, at no cost; from the first other one on, the server is asked.
    """

    def __init__(self, store: Store, place: Place, sample_id: str, asking: Asking) -> None:
        self._store = store
        self._place = place
        *_, draw = place
        # The first draw has the seeds of the only one.
        self._drawn = f"{sample_id}#{draw}" if draw else sample_id
        self._asking = asking
        self._stored = store.turns_of(place)
        self._number = 0

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        tag: str,
        reads: Sequence[TokenSpan] = (),
        memory: Callable[[str], str] | None = None,
    ) -> Turn:
        """See `core.types.Chat`."""
        number, self._number = self._number, self._number + 1
        asking = self._asking
        request = request_hash(messages, max_tokens, tag, asking.sampling)
        if number < len(self._stored):
            known, turn = self._stored[number]
            if known == request:
                return told(replace(turn, messages=tuple(messages)), reads, memory)
            del self._stored[number:]
            self._store.forget_turns(self._place, number)
        characters = sum(len(message.content) for message in messages)
        async with asking.admission.admit(int(characters / CHARS_PER_TOKEN) + max_tokens):
            turn = await asking.ask(
                messages, max_tokens=max_tokens, sampling=self._seeded(number), tag=tag
            )
        turn = told(turn, reads, memory)
        self._store.add_turn(self._place, number, request, turn)
        asking.on_turn(turn)
        return turn

    def _seeded(self, number: int) -> Sampling:
        """The sampling with this turn's own seed, another for each draw, the same at every
        resume."""
        sampling = self._asking.sampling
        if sampling.seed is None:
            return sampling
        words = f"{sampling.seed}/{self._drawn}/{number}"
        seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1
        return replace(sampling, seed=seed)


def request_hash(messages: Sequence[Message], max_tokens: int, tag: str, sampling: Sampling) -> str:
    """BLAKE2b of all that decides a reply, in hex (64 digits): of sizes and settings as JSON, then
    of the contents."""
    contents = [message.content.encode(errors="surrogatepass") for message in messages]
    sizes = [[m.role, len(data)] for m, data in zip(messages, contents, strict=True)]
    told = f"{json.dumps([sizes, max_tokens, tag])}{_as_json(sampling)}"
    digest = hashlib.blake2b(told.encode(), digest_size=32)
    for data in contents:
        digest.update(data)
    return digest.hexdigest()


@lru_cache
def _as_json(sampling: Sampling) -> str:
    return json.dumps(asdict(sampling))
