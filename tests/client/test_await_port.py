"""Wait for a port in an event loop, without a thread."""

from __future__ import annotations

import asyncio
import threading
import time

from tokenpipe.client.await_port import await_port
from tokenpipe.transport import MemoryLane


def test_it_returns_when_a_message_comes_or_at_the_deadline() -> None:
    async def main() -> None:
        lane = MemoryLane("lane")
        sender, receiver = lane.sender("me"), lane.receiver()
        began, threads = time.monotonic(), threading.active_count()
        await await_port(receiver, 0.2)
        assert time.monotonic() - began >= 0.2 and not receiver.readable()
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, sender.send, b"x")
        began = time.monotonic()
        await await_port(receiver, 20.0)
        assert time.monotonic() - began < 10.0 and receiver.readable()
        await await_port(receiver, 20.0)  # it is there already
        assert not loop.remove_reader(receiver.fileno())
        assert threading.active_count() == threads

    asyncio.run(main())


def test_a_cancelled_wait_leaves_no_reader() -> None:
    async def main() -> None:
        receiver = MemoryLane("lane").receiver()
        waiting = asyncio.ensure_future(await_port(receiver, 20.0))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], BaseException)
        assert not asyncio.get_running_loop().remove_reader(receiver.fileno())

    asyncio.run(main())
