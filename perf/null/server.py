"""A server that answers every completion at once, in a process of its own: what is left of a
client's time is the client's. Run as a script, it prints its port and serves until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serving.api.connection import allow_files

REPLY = "The special magic number is: 1234567. " * 10
"""As long as a memory."""
COMPLETION = {"choices": [{"text": REPLY, "finish_reason": "stop"}], "usage": None}
MODELS = {"data": [{"id": "m"}]}
CONNECTIONS = 1 << 12


@contextlib.contextmanager
def null_server() -> Iterator[str]:
    """The URL of a server that lives as long as the context."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


class _Null(asyncio.Protocol):
    """Reads requests by their lengths and answers each with the same reply."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end]).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            size = end + 4 + int(length or 0)
            if len(self.data) < size:
                return
            del self.data[:size]
            body = json.dumps(MODELS if head.startswith(b"get") else COMPLETION).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )


async def _serve() -> None:
    allow_files(CONNECTIONS)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Null, "127.0.0.1", 0, backlog=CONNECTIONS)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
