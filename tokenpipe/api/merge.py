"""Read the outputs of several requests as they come, at the pace of one reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tokenpipe.client import AsyncSamples, AsyncStream
from tokenpipe.types import RequestOutput


async def merged(
    outputs: Sequence[AsyncStream | AsyncSamples],
) -> AsyncIterator[tuple[int, RequestOutput]]:
    """Yield (which, output); what is not taken here waits in its own stream, bounded there."""
    queue: asyncio.Queue[tuple[int, RequestOutput | BaseException | None]] = asyncio.Queue(1)

    async def pump(which: int) -> None:
        try:
            async for output in outputs[which]:
                await queue.put((which, output))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await queue.put((which, error))
        else:
            await queue.put((which, None))

    pumps = [asyncio.create_task(pump(which)) for which in range(len(outputs))]
    try:
        left = len(pumps)
        while left:
            which, output = await queue.get()
            if isinstance(output, BaseException):
                raise output
            if output is None:
                left -= 1
            else:
                yield which, output
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
