"""A model that reads perfectly, behind a small HTTP server in this process."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.stored_chat import request_hash
from core.tokens import Tokenizer
from core.types import Message, Sampling

SECRETS = re.compile(r"ZEBRA-\d+")
VALUES = re.compile(r"is: \d{7}\.")


class ReaderServer(ThreadingHTTPServer):
    """OpenAI's chat completions, answered by a perfect reader that does as it is asked; keeps a
    list of requests, the doctor's aside."""

    daemon_threads = True
    asked: list[str]
    tokenizer: Tokenizer
    delay_s = 0.02
    wrap = "{}"
    """What a reply is written into."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def count(self, message: Message) -> int:
        return len(self.tokenizer.render_chat([message]))


class Handler(BaseHTTPRequestHandler):
    server: ReaderServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"data": [{"id": "reader"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"]
        tag = "memory" if text.endswith("Updated memory:\n") else "answer"
        sampling = Sampling(
            body["temperature"], body["top_p"], body["top_k"], body["repetition_penalty"], 42
        )
        message = Message("user", text)
        if "<problem>" in text or "<text>" in text:
            self.server.asked.append(request_hash([message], body["max_tokens"], tag, sampling))
            time.sleep(self.server.delay_s)
        numbers = " ".join(dict.fromkeys(VALUES.findall(text))) or "No previous memory"
        reply = numbers if tag == "memory" else f"Therefore, the answer is {numbers}"
        reply = self.server.wrap.format(reply)
        if sampling.temperature > 1 or sampling.repetition_penalty > 1:
            reply = f"{random.random()}"
        reply += "".join(SECRETS.findall(text))
        choice = {"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        usage = {"prompt_tokens": self.server.count(message), "completion_tokens": 3}
        self._send({"choices": [choice], "usage": usage})

    def _send(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def reader(tokenizer: Tokenizer) -> Iterator[ReaderServer]:
    """The server, for as long as the context is open. It serves a model called `reader`."""
    server = ReaderServer(("127.0.0.1", 0), Handler)
    server.asked, server.tokenizer = [], tokenizer
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
