import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from core.errors import (
    PromptTooLong,
    RequestFailed,
    RequestRejected,
    RequestTimeout,
    ServerDied,
    UsageError,
)
from core.types import GREEDY, Message, Sampling
from serving.client import Client, ClientOptions

ASK = [Message("user", "Where is it?")]
COMPLETION = {
    "choices": [{"text": "Here.", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
CHAT = {
    "choices": [{"message": {"content": "Here."}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


class WordTokenizer:
    """One id a word."""

    def render_chat(self, messages):
        return [len(word) for m in messages for word in m.content.split()]


class Server:
    """Answers with the given replies in turn (the last one for ever), keeps the requests,
    and counts the seconds that the client waited."""

    def __init__(self, *replies: httpx.Response | Exception | Callable) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.waits_s: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)

    @property
    def body(self) -> dict:
        return json.loads(self.requests[-1].content)

    def client(self, tokenizer=None, **options) -> Client:
        options = {"url": "http://127.0.0.1:1/v1", "retries": 3} | options
        return Client(
            ClientOptions(**options),
            tokenizer,
            transport=httpx.MockTransport(self),
            sleep=self.sleep,
        )

    async def turn(self, tokenizer=None, *, sampling=GREEDY, with_ids=False, **options):
        async with self.client(tokenizer, **options) as client:
            return await client.turn(
                "pocket", ASK, max_tokens=7, sampling=sampling, tag="memory", with_ids=with_ids
            )


def reply(data: dict, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(
        status, json=data, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def error(status: int, message: str, **headers: str) -> httpx.Response:
    return reply({"error": {"message": message}}, status, **headers)


async def test_messages_go_to_chat_completions_with_all_of_the_sampling():
    server = Server(reply(CHAT))
    turn = await server.turn(sampling=Sampling(0.7, 0.95, -1, 1.0, seed=5))

    assert server.requests[0].url.path == "/v1/chat/completions"
    assert server.body == {
        "model": "pocket",
        "max_tokens": 7,
        "messages": [{"role": "user", "content": "Where is it?"}],
        "temperature": 0.7,
        "top_p": 0.95,
        "seed": 5,
        "top_k": -1,
        "repetition_penalty": 1.0,
    }
    assert (turn.reply, turn.finish_reason, turn.tag) == ("Here.", "length", "memory")
    assert (turn.prompt_tokens, turn.completion_tokens) == (3, 2)
    assert turn.messages == tuple(ASK)
    assert turn.prompt_ids is None


async def test_with_a_tokenizer_ids_go_to_completions():
    server = Server(reply(COMPLETION))
    turn = await server.turn(WordTokenizer())

    assert server.requests[0].url.path == "/v1/completions"
    assert server.body["prompt"] == [5, 2, 3]
    assert "messages" not in server.body
    assert turn.reply == "Here."


WITH_IDS = {
    "choices": [
        {
            "text": "Here.",
            "finish_reason": "stop",
            "token_ids": [8, 9],
            "prompt_token_ids": [5, 2, 3],
            "logprobs": {"token_logprobs": [-0.5, -0.25]},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


async def test_with_ids_fills_the_training_fields():
    server = Server(reply(WITH_IDS))
    turn = await server.turn(WordTokenizer(), with_ids=True)

    assert server.body["return_token_ids"] is True
    assert server.body["logprobs"] == 0
    assert (turn.prompt_ids, turn.reply_ids) == ((5, 2, 3), (8, 9))
    assert turn.logprobs == (-0.5, -0.25)


async def test_ids_are_completed_as_they_are_and_come_back_with_logprobs():
    server = Server(reply(WITH_IDS))
    async with server.client() as client:
        answer = await client.complete("pocket", (5, 2, 3), max_tokens=7, sampling=GREEDY)
        with pytest.raises(RequestFailed, match="read other prompt ids"):
            await client.complete("pocket", (5, 2), max_tokens=7, sampling=GREEDY)

    assert json.loads(server.requests[0].content)["prompt"] == [5, 2, 3]
    assert (answer.reply_ids, answer.logprobs) == ((8, 9), (-0.5, -0.25))


async def test_with_ids_from_a_server_that_sends_none_fails_clearly():
    with pytest.raises(RequestFailed, match="no token ids"):
        await Server(reply(CHAT)).turn(with_ids=True)


async def test_plain_openai_gets_no_vllm_fields():
    server = Server(reply(CHAT))
    await server.turn(plain_openai=True)
    assert not {"top_k", "repetition_penalty"} & set(server.body)


async def test_azure_style(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    server = Server(reply(CHAT))
    await server.turn(
        url="https://me.openai.azure.com", azure_api_version="2024-10-21", key_env="MY_KEY"
    )

    request = server.requests[0]
    assert str(request.url) == (
        "https://me.openai.azure.com/openai/deployments/pocket/chat/completions"
        "?api-version=2024-10-21"
    )
    assert request.headers["api-key"] == "secret-key"
    assert "authorization" not in request.headers
    assert "top_k" not in server.body


@pytest.mark.parametrize(
    "failure",
    [
        error(500, "boom"),
        error(503, "overloaded"),
        error(429, "slow down"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("closed"),
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout(""),
    ],
)
async def test_transient_failures_are_retried_with_growing_waits(failure):
    server = Server(failure, failure, reply(CHAT))
    turn = await server.turn()

    assert turn.reply == "Here."
    assert len(server.requests) == 3
    first, second = server.waits_s
    assert 0.25 <= first <= 0.5 <= second <= 1.0


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (error(500, "boom"), RequestFailed, "500 in 4 attempts: .*boom"),
        (error(429, "slow down"), RequestFailed, "429 in 4 attempts"),
        (httpx.ReadError("reset"), RequestFailed, "broke .*reset; 4 attempts"),
        (httpx.ConnectError("refused"), ServerDied, "nobody answers at http://127.0.0.1:1/v1"),
    ],
)
async def test_retries_are_bounded(failure, kind, text):
    server = Server(failure)
    with pytest.raises(kind, match=text):
        await server.turn()
    assert len(server.requests) == 4


async def test_retry_after_is_honoured_up_to_the_cap():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    server = Server(
        error(429, "", retry_after="3"),
        error(503, "", retry_after="9999"),
        error(429, "", retry_after=date),
        reply(CHAT),
    )
    await server.turn()

    assert server.waits_s[:2] == [3.0, 30.0]
    assert 15 < server.waits_s[2] <= 20


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
async def test_refusals_are_not_retried(status):
    server = Server(error(status, "no"))
    with pytest.raises(RequestRejected, match=f"answered {status}: .*no"):
        await server.turn()
    assert len(server.requests) == 1


async def test_a_read_timeout_is_not_retried():
    server = Server(httpx.ReadTimeout(""))
    with pytest.raises(RequestTimeout, match="within 1800 s"):
        await server.turn()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 1024 tokens.",
        "Input length (2000) exceeds model's maximum context length (1024).",
        "max_tokens=9 cannot be greater than max_model_len=8",
    ],
)
async def test_a_context_length_400_is_prompt_too_long(message):
    with pytest.raises(PromptTooLong, match="answered 400"):
        await Server(error(400, message)).turn()


async def test_a_prompt_beyond_the_window_is_not_sent():
    server = Server(reply(COMPLETION))
    with pytest.raises(PromptTooLong, match="3 tokens and the reply may take 7"):
        await server.turn(WordTokenizer(), window_tokens=9)
    assert server.requests == []
    await server.turn(WordTokenizer(), window_tokens=10)


async def test_unknown_fields_point_to_the_flag():
    server = Server(error(400, "Unrecognized request argument supplied: top_k"))
    with pytest.raises(RequestRejected, match="--plain-openai"):
        await server.turn()


async def test_other_400s_do_not_point_to_the_flag():
    with pytest.raises(RequestRejected) as caught:
        await Server(error(400, "temperature must be at most 2")).turn()
    assert "--plain-openai" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>welcome</html>"),
        reply({"hello": 1}),
        reply({"choices": []}),
        httpx.Response(200, json=[]),
    ],
)
async def test_a_200_that_is_no_completion_fails_at_once(answer):
    server = Server(answer)
    with pytest.raises(RequestFailed, match="answered 200"):
        await server.turn()
    assert len(server.requests) == 1


async def test_the_key_is_sent_but_never_told(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-very-secret\n")

    def echo(request: httpx.Request) -> httpx.Response:
        return error(401, f"bad key {request.headers['authorization']}")

    server = Server(echo)
    client = server.client()
    with pytest.raises(RequestRejected, match="OPENAI_API_KEY") as caught:
        async with client:
            await client.turn("m", ASK, max_tokens=1, sampling=GREEDY, tag="a")

    assert server.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in f"{caught.value} {caught.value!r} {client!r} {client.options!r}"


async def test_a_key_that_is_none_is_refused_without_telling_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-se\ncret")
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        await Server(reply(CHAT)).turn()
    assert "cret" not in str(caught.value).replace("secret", "")


async def test_no_key_no_header(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = Server(reply(CHAT))
    await server.turn()
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a/v1", "http://", "http://u:p@h/v1"])
def test_a_wrong_url_is_a_usage_error(url):
    with pytest.raises(UsageError, match="--endpoint"):
        Client(ClientOptions(url))


async def test_check_names_what_is_served():
    server = Server(reply({"data": [{"id": "a"}, {"id": "b"}]}))
    async with server.client() as client:
        assert await client.models() == ["a", "b"]
        await client.check("a")
        with pytest.raises(UsageError, match="does not serve 'c'; it serves: a, b"):
            await client.check("c")


# -- a real socket ---------------------------------------------------------------------------


async def _ask(port: int, **options):
    options = {"retries": 1, "backoff_s": 0.01, "connect_timeout_s": 2.0} | options
    async with Client(ClientOptions(f"http://127.0.0.1:{port}/v1", **options)) as client:
        return await client.turn("m", ASK, max_tokens=1, sampling=GREEDY, tag="a")


async def _serve(handle) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_a_dead_endpoint_is_server_died():
    server, port = await _serve(lambda r, w: w.close())
    server.close()
    await server.wait_closed()
    with pytest.raises(ServerDied, match=f"nobody answers at http://127.0.0.1:{port}/v1"):
        await _ask(port)


async def test_an_endpoint_that_hangs_up_is_request_failed():
    calls = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(1)
        await reader.readline()
        writer.close()

    server, port = await _serve(hang_up)
    async with server:
        with pytest.raises(RequestFailed, match="broke"):
            await _ask(port)
    assert len(calls) == 2


async def test_an_endpoint_that_never_answers_is_a_timeout():
    released = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server, port = await _serve(silent)
    async with server:
        with pytest.raises(RequestTimeout, match=r"within 0\.2 s"):
            await _ask(port, reply_timeout_s=0.2)
        released.set()
