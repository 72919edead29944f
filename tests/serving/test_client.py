"""What the client sends, and what it makes of every kind of answer."""

from __future__ import annotations

import json
import resource
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from core.errors import (
    BadReply,
    HarnessError,
    PromptTooLong,
    RequestFailed,
    RequestRejected,
    RequestTimeout,
    ServerDied,
    UsageError,
)
from core.types import GREEDY, Message, Sampling
from serving.client import Client, ClientOptions
from tests.serving.scripted import (
    ASK,
    CHAT,
    COMPLETION,
    USAGE,
    Answer,
    ScriptedServer,
    Time,
    ask,
    error,
    reply,
    says,
)


class WordTokenizer:
    """One id a word."""

    def render_chat(self, messages: list[Message]) -> list[int]:
        return [len(word) for m in messages for word in m.content.split()]


async def test_messages_go_to_chat_completions_with_all_of_the_sampling() -> None:
    server = ScriptedServer(reply(CHAT))
    turn = await server.turn(sampling=Sampling(0.7, 0.95, -1, 1.0, seed=5))

    assert server.asked[0].path == "/v1/chat/completions"
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


async def test_with_a_tokenizer_ids_go_to_completions() -> None:
    server = ScriptedServer(reply(COMPLETION))
    turn = await server.turn(WordTokenizer())

    assert server.asked[0].path == "/v1/completions"
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
    "usage": USAGE,
}


async def test_a_whole_reply_is_asked_for_where_speed_is_measured() -> None:
    server = ScriptedServer(reply(COMPLETION))
    async with server.running(), server.client() as client:
        rest: Any = {"max_tokens": 7, "sampling": GREEDY, "tag": "memory"}
        await client.turn("pocket", ASK, whole=True, **rest)
        await client.turn("pocket", ASK, **rest)
    assert [asked.body.get("ignore_eos") for asked in server.asked] == [True, None]


async def test_with_ids_fills_the_training_fields() -> None:
    server = ScriptedServer(reply(WITH_IDS))
    turn = await server.turn(WordTokenizer(), with_ids=True)

    assert server.body["return_token_ids"] is True
    assert server.body["logprobs"] == 0
    assert (turn.prompt_ids, turn.reply_ids) == ((5, 2, 3), (8, 9))
    assert turn.logprobs == (-0.5, -0.25)


async def test_ids_are_completed_as_they_are_and_come_back_with_logprobs() -> None:
    server = ScriptedServer(reply(WITH_IDS))
    async with server.running(), server.client() as client:
        answer = await client.complete("pocket", (5, 2, 3), max_tokens=7, sampling=GREEDY)
        with pytest.raises(RequestFailed, match="read other prompt ids"):
            await client.complete("pocket", (5, 2, 4), max_tokens=7, sampling=GREEDY)

    assert server.asked[0].body["prompt"] == [5, 2, 3]
    assert (answer.reply_ids, answer.logprobs) == ((8, 9), (-0.5, -0.25))


async def test_with_ids_from_a_server_that_sends_none_fails_clearly() -> None:
    with pytest.raises(RequestFailed, match="no token ids"):
        await ScriptedServer(reply(CHAT)).turn(with_ids=True)


async def test_plain_openai_gets_no_vllm_fields() -> None:
    server = ScriptedServer(reply(CHAT))
    await server.turn(plain_openai=True)
    assert not {"top_k", "repetition_penalty"} & set(server.body)


async def test_azure_style(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key")
    server = ScriptedServer(reply(CHAT))
    async with server.running():
        url = f"http://127.0.0.1:{server.port}"
        options = {"url": url, "azure_api_version": "2024-10-21", "key_env": "MY_KEY"}
        async with server.client(**options) as client:
            await ask(client)

    asked = server.asked[0]
    assert asked.path == "/openai/deployments/pocket/chat/completions"
    assert asked.query == "api-version=2024-10-21"
    assert asked.headers["api-key"] == "secret-key"
    assert "authorization" not in asked.headers
    assert "top_k" not in server.body


# -- what may pass, and what may not -----------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        error(500, "boom"),
        error(503, "overloaded"),
        error(429, "slow down"),
        Answer(drop=True),
        Answer(b'{"choices"', cut=50),
        Answer(b"<html>starting</html>"),
    ],
)
async def test_what_may_pass_is_tried_again_with_growing_waits(failure: Answer) -> None:
    time = Time()
    server = ScriptedServer(failure, failure, reply(CHAT), probe=reply(CHAT))
    turn = await server.turn(patience=time.patience())

    assert turn.reply == "Here."
    assert len(server.asked) == 3
    assert any(0.25 <= wait <= 0.5 for wait in time.waits_s)
    assert any(0.5 < wait <= 1.0 for wait in time.waits_s)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (error(500, "boom"), "answered 500: boom.*4 tries"),
        (Answer(drop=True), "broke .*4 tries"),
        (Answer(b"{", cut=5), "broke .*4 tries"),
    ],
)
async def test_a_request_that_fails_where_a_probe_is_answered_has_bounded_tries(
    failure: Answer, text: str
) -> None:
    server = ScriptedServer(failure, probe=reply(CHAT))
    with pytest.raises(RequestFailed, match=text):
        await server.turn()
    assert len(server.asked) == 4


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
async def test_refusals_are_not_retried(status: int) -> None:
    server = ScriptedServer(error(status, "no", location="http://127.0.0.1:9/v1"))
    with pytest.raises(RequestRejected, match=f"answered {status}: .*no"):
        await server.turn()
    assert len(server.asked) == 1


async def test_a_redirect_does_not_get_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    other = ScriptedServer(reply(CHAT))
    async with other.running():
        server = ScriptedServer(error(307, "moved", location=other.url))
        with pytest.raises(RequestRejected, match="Give the URL that it redirects to"):
            await server.turn()
    assert other.asked == []


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 1024 tokens.",
        "Input length (2000) exceeds model's maximum context length (1024).",
        "max_tokens=9 cannot be greater than max_model_len=8",
    ],
)
async def test_a_context_length_400_is_prompt_too_long(message: str) -> None:
    with pytest.raises(PromptTooLong, match="answered 400"):
        await ScriptedServer(error(400, message)).turn()


async def test_a_prompt_beyond_the_window_is_not_sent() -> None:
    server = ScriptedServer(reply(COMPLETION))
    with pytest.raises(PromptTooLong, match="3 tokens and the reply may take 7"):
        await server.turn(WordTokenizer(), window_tokens=9)
    assert server.asked == []
    await server.turn(WordTokenizer(), window_tokens=10)


async def test_unknown_fields_point_to_the_flag() -> None:
    server = ScriptedServer(error(400, "Unrecognized request argument supplied: top_k"))
    with pytest.raises(RequestRejected, match="--plain-openai"):
        await server.turn()


async def test_other_400s_do_not_point_to_the_flag() -> None:
    with pytest.raises(RequestRejected) as caught:
        await ScriptedServer(error(400, "temperature must be at most 2")).turn()
    assert "--plain-openai" not in str(caught.value)


# -- replies that are none ---------------------------------------------------------------------


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": "Here."}, "finish_reason": "stop"} | fields]}


BAD = {
    "html": Answer(b"<html>welcome</html>"),
    "other json": reply({"hello": 1}),
    "a list": reply([]),
    "no choices": reply({"choices": []}),
    "neither text nor message": reply({"choices": [{"finish_reason": "stop"}]}),
    "parts": reply(choice(message={"content": [{"type": "text", "text": "Here."}]})),
    "a number": reply(choice(message={"content": 7})),
    "lone surrogate": Answer(b'{"choices": [{"message": {"content": "a\\ud800b"}}]}'),
    "not utf-8": Answer(b'{"choices": [{"message": {"content": "a\xff"}}]}'),
    "deep": Answer(b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep elsewhere": Answer(json.dumps(CHAT).encode()[:-1] + b',"x":' + b"[" * 99_999 + b"}"),
    "null usage field": reply(CHAT | {"usage": {"prompt_tokens": None}}),
    "huge usage": reply(CHAT | {"usage": {"prompt_tokens": 10**30, "completion_tokens": 1}}),
    "negative usage": reply(CHAT | {"usage": {"completion_tokens": -1}}),
    "usage of text": reply(CHAT | {"usage": {"completion_tokens": "2"}}),
    "numeric finish": reply(choice(finish_reason=3)),
    "five megabytes": says("x" * 5_000_000),
    "nothing": Answer(b""),
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD.keys())
async def test_a_200_that_is_no_reply_is_one_bad_reply(answer: Answer) -> None:
    server = ScriptedServer(answer)
    with pytest.raises(BadReply, match="4 tries") as caught:
        await server.turn()
    assert (caught.value.kind, caught.value.fatal) == ("bad_reply", False)
    assert len(server.asked) == 4
    assert len(str(caught.value)) < 1000
    str(caught.value).encode()


async def test_a_bad_reply_may_be_followed_by_a_good_one() -> None:
    server = ScriptedServer(reply({"choices": []}), reply(CHAT))
    assert (await server.turn()).reply == "Here."


async def test_a_server_that_read_another_prompt_is_found_out() -> None:
    cut = COMPLETION | {"usage": {"prompt_tokens": 2, "completion_tokens": 2}}
    with pytest.raises(BadReply, match="read 2 prompt tokens, it was sent 3"):
        await ScriptedServer(reply(cut)).turn(WordTokenizer())


async def test_a_reply_without_usage_is_a_reply() -> None:
    answer = reply({"choices": COMPLETION["choices"]})
    turn = await ScriptedServer(answer).turn(WordTokenizer())
    assert (turn.reply, turn.prompt_tokens, turn.completion_tokens) == ("Here.", 3, 0)


async def test_a_reply_of_control_characters_is_kept_as_it_is() -> None:
    text = "\x00\x1b[31mred\x07 \u202e"
    assert (await ScriptedServer(says(text)).turn()).reply == text


async def test_an_empty_reply_is_a_reply() -> None:
    assert (await ScriptedServer(reply(choice(message={"content": None}))).turn()).reply == ""


# -- a terminal is told nothing that it would obey ---------------------------------------------

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\x9b31m\u202e\x00\ud800"


@pytest.mark.parametrize(
    "answer",
    [
        error(400, HOSTILE),
        error(500, HOSTILE),
        Answer(HOSTILE.encode(errors="replace"), 400),
        Answer(HOSTILE.encode(errors="replace")),
        reply(choice(message={"content": [HOSTILE]})),
        reply({"data": [{"id": HOSTILE.replace("\ud800", "")}]}),
    ],
)
async def test_control_characters_from_a_server_are_made_visible(answer: Answer) -> None:
    server = ScriptedServer(answer, probe=reply(CHAT))
    async with server.running(), server.client() as client:
        for asking in (ask(client), client.check("pocket")):
            with pytest.raises(HarnessError) as caught:
                await asking
            assert str(caught.value).isprintable()


# -- the key -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("escaped", [False, True])
async def test_the_key_is_sent_but_never_told(
    monkeypatch: pytest.MonkeyPatch, status: int, escaped: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-very-secret\n")
    echoed = "sk-very-secret".replace("s", "\\u0073") if escaped else "sk-very-secret"
    body = f'{{"error": {{"message": "bad key {echoed}"}}}}'.encode()
    server = ScriptedServer(Answer(body, status), probe=reply(CHAT))
    async with server.running():
        client = server.client()
        with pytest.raises(HarnessError) as caught:
            async with client:
                await ask(client)

    assert server.asked[0].headers["authorization"] == "Bearer sk-very-secret"
    told = f"{caught.value} {caught.value!r} {client!r} {client.options!r}"
    assert "very-secret" not in told


async def test_a_reply_that_repeats_the_key_is_rid_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert (await ScriptedServer(says("I saw sk-very-secret.")).turn()).reply == "I saw [key]."


async def test_a_key_that_is_none_is_refused_without_telling_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-se\ncret")
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        await ScriptedServer(reply(CHAT)).turn()
    assert "cret" not in str(caught.value).replace("secret", "")


async def test_no_key_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = ScriptedServer(reply(CHAT))
    await server.turn()
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://a/v1", "http://", "http://u:p@h/v1", "http://h:99999/v1"]
)
def test_a_wrong_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="--endpoint"):
        Client(ClientOptions(url))


async def test_check_names_what_is_served() -> None:
    server = ScriptedServer(reply({"data": [{"id": "a"}, {"id": "b"}]}))
    async with server.running(), server.client() as client:
        assert await client.models() == ["a", "b"]
        await client.check("a")
        with pytest.raises(UsageError, match="does not serve 'c'; it serves: a, b"):
            await client.check("c")


# -- time --------------------------------------------------------------------------------------


async def test_retry_after_lengthens_the_wait_and_never_shortens_it() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    asked = ["3", "0", "nan", "-5", "soon", date]
    time = Time()
    answers = [error(429, "", retry_after=value) for value in asked]
    server = ScriptedServer(*answers, reply(CHAT), probe=reply(CHAT))
    await server.turn(patience=time.patience())

    assert 3.0 in time.waits_s
    assert any(15 < wait <= 20 for wait in time.waits_s)
    assert min(time.waits_s) >= 0.25
    assert len(server.asked) == 7


async def test_silence_is_a_timeout_and_is_not_asked_again() -> None:
    server = ScriptedServer(Answer(hang=True), probe=reply(CHAT))
    with pytest.raises(RequestTimeout, match=r"did not reply within 0\.2 s"):
        await server.turn(reply_timeout_s=0.2)
    assert len(server.asked) == 1


async def test_a_reply_that_stops_in_the_middle_is_a_timeout() -> None:
    server = ScriptedServer(Answer(b'{"choices"', cut=9, hang=True), probe=reply(CHAT))
    with pytest.raises(RequestTimeout, match=r"10 bytes of a reply and then nothing for 0\.1 s"):
        await server.turn(silence_timeout_s=0.1)


async def test_nobody_at_an_address_that_never_answered_is_told_soon() -> None:
    time = Time()
    server = ScriptedServer(reply(CHAT))
    async with server.running():
        pass
    async with server.client(patience=time.patience()) as client:
        with pytest.raises(ServerDied, match=rf"nobody answers at {server.url}.*URL right\?"):
            await ask(client)
    assert time.now < 10


async def test_more_connections_than_files_are_made_room_for_or_refused() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = ScriptedServer(reply(CHAT))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert (await server.turn(connections=300)).reply == "Here."
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 556
        if before[1] != resource.RLIM_INFINITY:
            with pytest.raises(UsageError, match=r"--concurrency of at most \d+"):
                await server.turn(connections=before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
