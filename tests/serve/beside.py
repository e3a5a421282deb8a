"""Streams beside one call: whether each is whole, and how long its reader waited for a chunk."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.serve.running import Running

Answers = Sequence[httpx.Response]


@dataclass
class Beside:
    """What became of the streams."""

    texts: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # seconds between two chunks of a stream

    @property
    def p99(self) -> float:
        return sorted(self.gaps)[int(len(self.gaps) * 0.99)]


def stream_beside(
    server: Running, body: dict[str, Any], count: int, call: Callable[[], None]
) -> Beside:
    """Open `count` streams, `call` once all have begun, and read the streams to their ends."""
    found = Beside()
    begun = threading.Semaphore(0)

    def run() -> None:
        asyncio.run(_read_all(server, body, count, found, begun))

    reading = threading.Thread(target=run)
    reading.start()
    try:
        for _ in range(count):
            assert begun.acquire(timeout=30)
        call()
    finally:
        reading.join(60)
    assert not reading.is_alive()
    return found


async def _read_all(
    server: Running, body: dict[str, Any], count: int, found: Beside, begun: threading.Semaphore
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    raw = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"

    async def read_one() -> str:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        writer.write(head.encode() + raw)
        text, last = "", 0.0
        try:
            while not (line := await reader.readline()).startswith(b"data: [DONE]"):
                assert line, text
                if not line.startswith(b"data: "):
                    continue
                now = time.monotonic()
                if last:
                    found.gaps.append(now - last)
                else:
                    begun.release()
                last = now
                text += json.loads(line[6:])["choices"][0]["text"]
        finally:
            writer.close()
        return text

    found.texts += await asyncio.gather(*(read_one() for _ in range(count)))
