"""Do long work in slices, so that the event loop serves the other callers in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

SLICE_S = 0.005


class Slices:
    """Await `pause` between two small pieces of work: it lets the loop run after each slice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    async def pause(self) -> None:
        """Let the loop run once, if the present slice is used up."""
        if self._clock() - self._since >= SLICE_S:
            await asyncio.sleep(0)
            self._since = self._clock()


async def joined(parts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> bytes:
    """Return the joined parts in UTF-8. The loop runs while they are made."""
    slices = Slices(clock)
    made: list[bytes] = []
    for part in parts:
        made.append(part.encode())
        await slices.pause()
    return b"".join(made)
