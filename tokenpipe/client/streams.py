"""The iterators over a request's output."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from typing_extensions import Self

from tokenpipe._core import Stream
from tokenpipe.types import RequestOutput


class AsyncStream(Stream):
    """Output of one sample, for `async for`. An item holds all output since the last item."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Cancel the request, unless it has ended."""
        self.drop()


class AsyncSamples:
    """Output of n samples in the order in which it comes. It ends when all samples have ended."""

    __slots__ = ("_loop", "_streams")

    def __init__(self, streams: Iterable[AsyncStream], loop: asyncio.AbstractEventLoop) -> None:
        self._streams = deque(streams)
        self._loop = loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        while True:
            if (item := self._take()) is not None:
                return item
            if not self._streams:
                raise StopAsyncIteration
            await self._more()

    def _take(self) -> RequestOutput | None:
        streams = self._streams
        for _ in range(len(streams)):
            stream = streams[0]
            item = stream.take()
            if stream.over:
                streams.popleft()
            else:
                streams.rotate(-1)  # else a busy sample would keep the others waiting
            if item is not None:
                return item
        return None

    async def _more(self) -> None:
        future = self._loop.create_future()
        for stream in self._streams:
            stream.park(future)
        try:
            await future
        finally:
            for stream in self._streams:
                stream.unpark()

    async def aclose(self) -> None:
        """Cancel every sample that has not ended."""
        while self._streams:
            self._streams.pop().drop()


class SyncStream(Stream):
    """Output of one sample, for `for`. A wait for an item also fills the client's other streams."""

    __slots__ = ("wait",)
    wait: Callable[[], None]  # waits until the lanes brought output, and reads it

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RequestOutput:
        while (item := self.take()) is None:
            if self.over:
                raise StopIteration
            self.wait()
        return item

    def close(self) -> None:
        """Cancel the request, unless it has ended."""
        self.drop()
