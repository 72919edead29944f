"""How a server is reached, and which dialect of OpenAI's API it speaks."""

from __future__ import annotations

from dataclasses import dataclass

from serving.api.wire import Dialect


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach a server. Times in seconds.

    `url`: up to and including `/v1`; for Azure the resource, `https://NAME.openai.azure.com`.
    `key_env`: the environment variable that holds the key; it is read when the client opens.
    `plain_openai`: leave out top_k and repetition_penalty, which OpenAI's own servers refuse.
    `openai_reasoning`: leave out temperature and top_p too, and say max_completion_tokens, as
    OpenAI's reasoning models want it.
    `azure_api_version`: turns on Azure's style: api-key header, deployment in the path.
    `window_tokens`: the model's window, checked before sending; servers may otherwise cut
    the reply budget without a word. None leaves the check to the server.
    `connections`: requests at the server at once. `reply_timeout_s`: from sending a request to
    its reply's end; `silence_timeout_s`: between two bytes of a reply that has begun.
    `retries`: of a request where the server answers others.
    """

    url: str
    key_env: str = "OPENAI_API_KEY"
    plain_openai: bool = False
    openai_reasoning: bool = False
    azure_api_version: str | None = None
    window_tokens: int | None = None
    connections: int = 64
    connect_timeout_s: float = 10.0
    reply_timeout_s: float = 1800.0
    silence_timeout_s: float = 60.0
    retries: int = 5

    @property
    def dialect(self) -> Dialect:
        """Which fields of a request the server knows."""
        if self.openai_reasoning:
            return "openai_reasoning"
        return "openai" if self.plain_openai or self.azure_api_version is not None else "vllm"

    def address(self, model: str, path: str) -> str:
        """Where a request for a model goes; no model: one about the server."""
        base = self.url.rstrip("/")
        if self.azure_api_version is None:
            return base + path
        middle = f"/openai/deployments/{model}" if model else "/openai"
        return f"{base}{middle}{path}?api-version={self.azure_api_version}"
