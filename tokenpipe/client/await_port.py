"""Wait for one port in an event loop."""

from __future__ import annotations

import asyncio

from tokenpipe.transport import Port


async def await_port(port: Port, timeout_s: float) -> None:
    """Return when a message may be there, after `timeout_s` at the latest. Starts no thread."""
    if port.readable() or timeout_s <= 0:
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()
    fd = port.fileno()
    loop.add_reader(fd, _note, came)
    try:
        await asyncio.wait({came}, timeout=timeout_s)
    finally:
        loop.remove_reader(fd)


def _note(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)
