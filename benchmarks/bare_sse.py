"""The upper limit for bench_http: a bare Starlette app that streams a constant chunk.

A chunk has one token and is as long as a chunk of tokenpipe's. A call gets `max_tokens` of them.
The app runs on the same uvicorn as `serve`, or on gunicorn with uvicorn workers, with the same
options. With a rate, all streams get their next chunk at the same moment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import uvicorn
from gunicorn.app.base import BaseApplication
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from uvicorn_worker import UvicornWorker

OPTIONS: dict[str, Any] = {
    "http": "httptools",
    "loop": "auto",
    "ws": "none",
    "log_config": None,
    "access_log": False,
    "server_header": False,
}
CHUNK = (
    b'data: {"id": "cmpl-0123456789abcdef01234567", "object": "text_completion", "created": '
    b'1700000000, "model": "tokenpipe","choices":[{"index":0,"text":" 12345","logprobs":null,'
    b'"finish_reason":null}],"usage":null}\n\n'
)


class Ticks:
    """One clock for all streams of a process. `await ticks.next()` costs one wake-up a stream."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._waiting: asyncio.Future[None] | None = None

    def next(self) -> asyncio.Future[None]:
        """Return a future that is done at the next tick."""
        loop = asyncio.get_running_loop()
        if self._waiting is None:
            self._waiting = loop.create_future()
            loop.call_at((loop.time() * self.rate // 1 + 1) / self.rate, self._tick)
        return self._waiting

    def _tick(self) -> None:
        assert self._waiting is not None
        waiting, self._waiting = self._waiting, None
        waiting.set_result(None)


ticks = Ticks()


async def completions(request: Request) -> StreamingResponse:
    """Stream `max_tokens` chunks."""
    tokens = (await request.json())["max_tokens"]

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(tokens):
            if ticks.rate:
                await ticks.next()
            yield CHUNK
        usage = b'data: {"choices":[],"usage":{"completion_tokens": %d}}\n\n' % tokens
        yield usage + b"data: [DONE]\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


app = Starlette(routes=[Route("/v1/completions", completions, methods=["POST"])])


class BareWorker(UvicornWorker):  # type: ignore[misc]
    """A gunicorn worker with the same uvicorn options as `serve`."""

    CONFIG_KWARGS = OPTIONS


class BareManager(BaseApplication):  # type: ignore[misc]
    """gunicorn with the same options as `serve`."""

    def __init__(self, fd: int, workers: int) -> None:
        self._given = {"bind": [f"fd://{fd}"], "workers": workers, "worker_class": BareWorker}
        super().__init__()

    def load_config(self) -> None:
        """Set the options."""
        for name, value in {**self._given, "control_socket_disable": True, "timeout": 0}.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the ASGI app."""
        return app


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM. The URL is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="server processes")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="chunks/s of each stream; 0: no limit"
    )
    args = parser.parse_args(argv)
    ticks.rate = args.rate
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"serving on http://127.0.0.1:{sock.getsockname()[1]};", flush=True)
    if args.workers > 1:
        os.set_inheritable(sock.fileno(), True)
        BareManager(sock.fileno(), args.workers).run()
    else:
        uvicorn.Server(uvicorn.Config(app, **OPTIONS)).run(sockets=[sock])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
