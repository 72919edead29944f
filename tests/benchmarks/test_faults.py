"""A sweep through a server that misbehaves: counted by kind, nothing lost, nothing waits for ever.

The sweep, the client and the store are the real ones; the server is scripted and on a real
socket, and only waiting is made up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ledger import LedgerRow
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Store
from benchmarks.sweep import Answering, Limits, Serving, sweep
from core.errors import ServerDied
from core.tokens import Tokenizer
from serving.client import Client, ClientOptions
from tests.benchmarks.test_sweep import plan_of
from tests.serving.scripted import Answer, Asked, ScriptedServer, Time, error, reply, says
from tests.serving.test_client import BAD


class Endpoint:
    """A scripted server in a thread; `misbehaves` says what a request gets instead of an answer."""

    def __init__(self, misbehaves: Callable[[int], Answer | None]) -> None:
        self.misbehaves = misbehaves
        self.count = 0
        self.time = Time()

    def answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return reply({"data": [{"id": "m"}]})
        if asked.is_probe:
            return self.misbehaves(-1) or says("x")
        self.count += 1
        return self.misbehaves(self.count) or says("Therefore, the answer is 1234567")

    @contextmanager
    def running(self) -> Iterator[str]:
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


def run(plan: Plan, run_dir: Path, endpoint: Endpoint, **options: float) -> list[LedgerRow]:
    with endpoint.running() as url:

        @asynccontextmanager
        async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
            patience = endpoint.time.patience(outage_s=100.0)
            asked = ClientOptions(url, retries=2, **options)  # type: ignore[arg-type]
            yield Answering(Client(asked, patience=patience))

        @contextmanager
        def server(work: Mapping[str, float]) -> Iterator[Serving]:
            yield Serving(answers)

        return sweep(plan, run_dir, server, {"m": Limits(concurrency=3)})


def small(tokenizer: Tokenizer) -> Plan:
    plan = plan_of(tokenizer)
    return replace(plan, cells=plan.cells[:1])


def errors(rows: list[LedgerRow]) -> Counter[str]:
    return sum((row.errors for row in rows), Counter())


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD.keys())
def test_replies_that_are_none_fail_their_samples_and_nothing_else(
    tokenizer: Tokenizer, tmp_path: Path, answer: Answer
) -> None:
    rows = run(small(tokenizer), tmp_path, Endpoint(lambda number: answer))
    assert errors(rows) == {"bad_reply": 3}
    healed = run(small(tokenizer), tmp_path, Endpoint(lambda number: None))
    assert (healed[0].ok, healed[0].owed, errors(healed)) == (3, 0, Counter())


@pytest.mark.parametrize(
    "answer",
    [
        *(error(status, "away") for status in (429, 500, 503)),
        Answer(drop=True),
        Answer(b"{", cut=7),
    ],
)
def test_a_passing_outage_fails_nothing(
    tokenizer: Tokenizer, tmp_path: Path, answer: Answer
) -> None:
    endpoint = Endpoint(
        lambda number: answer if endpoint.count > 5 and endpoint.time.now < 60 else None
    )
    rows = run(small(tokenizer), tmp_path, endpoint)
    assert (rows[0].ok, errors(rows)) == (3, Counter())


def test_a_long_outage_ends_the_run_with_everything_owed_and_nothing_failed(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    def gone(number: int) -> Answer | None:
        return error(500, "away") if number < 0 or number > 8 else None

    with pytest.raises(ServerDied, match="more than 100 s"):
        run(small(tokenizer), tmp_path, Endpoint(gone))
    with Store.read(tmp_path) as store:
        assert not any(row["status"] == "error" for row in store.sample_rows())
        kept = len(list(store.turn_rows()))
    assert kept == 8
    again = Endpoint(lambda number: None)
    rows = run(small(tokenizer), tmp_path, again)
    assert (rows[0].ok, rows[0].owed) == (3, 0)
    with Store.read(tmp_path) as store:
        assert again.count == len(list(store.turn_rows())) - kept


def test_a_request_that_gets_no_answer_is_tried_again_at_the_end(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    endpoint = Endpoint(lambda number: Answer(hang=True) if number in (2, 3) else None)
    rows = run(small(tokenizer), tmp_path, endpoint, reply_timeout_s=0.3)
    assert (rows[0].ok, errors(rows)) == (3, Counter())
    with Store.read(tmp_path) as store:
        assert endpoint.count == len(list(store.turn_rows())) + 2


def test_a_server_that_never_answers_a_sample_ends_it_as_a_timeout(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    endpoint = Endpoint(lambda number: Answer(hang=True) if number > 0 else None)
    rows = run(small(tokenizer), tmp_path, endpoint, reply_timeout_s=0.1)
    assert (rows[0].ok, errors(rows)) == (0, Counter(timeout=3))
