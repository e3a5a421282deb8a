"""The ceiling of bench_http: a bare Starlette app that streams chunks made beforehand.

One token a chunk, as many as a call's `max_tokens`; each chunk as long as a chunk of ours. Served
by the same uvicorn, or gunicorn with uvicorn workers, with the same options as `serve`. With a rate
all streams get their next chunk at the same moment, so many times a second.
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
    """One clock for all streams of a process: `await ticks.next()` costs what any wake-up does."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._waiting: asyncio.Future[None] | None = None

    def next(self) -> asyncio.Future[None]:
        """Return what is done at the next tick."""
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
    """Stream as many chunks as the body asks for."""
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


class Worker(UvicornWorker):  # type: ignore[misc]
    """uvicorn as `serve` has it."""

    CONFIG_KWARGS = OPTIONS


class Manager(BaseApplication):  # type: ignore[misc]
    """gunicorn as `serve` has it."""

    def __init__(self, fd: int, workers: int) -> None:
        self._given = {"bind": [f"fd://{fd}"], "workers": workers, "worker_class": Worker}
        super().__init__()

    def load_config(self) -> None:
        """Set what was given."""
        for name, value in {**self._given, "control_socket_disable": True, "timeout": 0}.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the app."""
        return app


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM; the port is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="chunks/s of a stream; 0: no limit")
    args = parser.parse_args(argv)
    ticks.rate = args.rate
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"serving on http://127.0.0.1:{sock.getsockname()[1]};", flush=True)
    if args.workers > 1:
        os.set_inheritable(sock.fileno(), True)
        Manager(sock.fileno(), args.workers).run()
    else:
        uvicorn.Server(uvicorn.Config(app, **OPTIONS)).run(sockets=[sock])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
