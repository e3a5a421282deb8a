"""Read the outputs of several requests in the order in which they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tokenpipe.client import AsyncSamples, AsyncStream
from tokenpipe.types import RequestOutput


async def merged(
    streams: Sequence[AsyncStream | AsyncSamples],
) -> AsyncIterator[tuple[int, RequestOutput]]:
    """Yield (index of the stream, output). Raises what a stream raises.

    At most one output is taken ahead of the reader; the others wait in their streams, which are
    bounded.
    """
    queue: asyncio.Queue[tuple[int, RequestOutput | BaseException | None]] = asyncio.Queue(1)

    async def pump(index: int) -> None:
        try:
            async for output in streams[index]:
                await queue.put((index, output))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await queue.put((index, error))
        else:
            await queue.put((index, None))

    pumps = [asyncio.create_task(pump(index)) for index in range(len(streams))]
    try:
        running = len(pumps)
        while running:
            index, output = await queue.get()
            if isinstance(output, BaseException):
                raise output
            if output is None:
                running -= 1
            else:
                yield index, output
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
