"""Open many streamed completions at once and count their events: the load of bench_http.

`python -m benchmarks.http_load --url URL --streams N --tokens N` prints one line of JSON when all
streams have ended. It searches the bytes and parses no JSON, so it costs less than the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
_TAIL = 2048


class CompletionCall(asyncio.Protocol):
    """One call, from the request to its [DONE]."""

    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self.events = 0
        self.tokens = 0
        self._request = request
        self._done = done
        self._tail = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        """Send the request."""
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the events. Each one ends with an empty line."""
        self.events += data.count(b"\n\n") + (self._tail[-1:] == b"\n" == data[:1])
        self._tail = (self._tail + data)[-_TAIL:] if len(data) < _TAIL else data[-_TAIL:]
        if b"data: [DONE]" in self._tail:
            found = _TOKENS.search(self._tail)
            self.tokens = int(found[1]) if found else 0
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call, complete or not."""
        self._end()

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)
            assert self._transport is not None
            self._transport.close()


async def load(url: str, streams: int, tokens: int) -> dict[str, float]:
    """Run all streams once; return wall_s, events, tokens and the number of short streams."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(
        {
            "prompt": [1, 2, 3],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    loop = asyncio.get_running_loop()
    waits = [loop.create_future() for _ in range(streams)]
    begin = time.monotonic()
    made = await asyncio.gather(
        *(
            loop.create_connection(partial(CompletionCall, request, w), host, int(port))
            for w in waits
        )
    )
    await asyncio.gather(*waits)
    wall = time.monotonic() - begin
    protocols = [protocol for _, protocol in made]
    return {
        "wall_s": wall,
        "events": sum(p.events for p in protocols) - 2 * streams,  # usage and [DONE]
        "tokens": sum(p.tokens for p in protocols),
        "short": sum(p.tokens != tokens for p in protocols),
    }


def main(argv: Sequence[str]) -> int:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the server, as http://HOST:PORT")
    parser.add_argument("--streams", type=int, required=True, help="streams at once")
    parser.add_argument("--tokens", type=int, required=True, help="tokens of each stream")
    args = parser.parse_args(argv)
    print(json.dumps(asyncio.run(load(args.url, args.streams, args.tokens))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
