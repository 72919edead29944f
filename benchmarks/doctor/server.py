"""The server that probes ask, and what they ask it more than once."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.tokens import Tokenizer
from core.types import GREEDY, Sampling
from serving.api.wire import Asked, Dialect, Reply
from serving.client import Client

SHORT_TOKENS = 16
STORY = "Tell a story about a lighthouse, a goat and a clock. Begin at once."


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


async def story(server: Server) -> Reply:
    """The greedy reply to STORY, asked once."""
    if "story" not in server.replies:
        server.replies["story"] = await server.ask(STORY)
    return server.replies["story"]
