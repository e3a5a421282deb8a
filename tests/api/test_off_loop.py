"""Long work runs in a thread, short work at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tokenpipe.api.off_loop import INLINE_BYTES, OffLoop


@pytest.mark.case("F37")
def test_work_on_many_bytes_leaves_the_loop() -> None:
    async def run() -> None:
        off_loop = OffLoop()
        here = threading.get_ident()
        assert await off_loop.run(INLINE_BYTES, threading.get_ident) == here
        assert await off_loop.run(INLINE_BYTES + 1, threading.get_ident) != here
        go = threading.Event()
        waiting = asyncio.create_task(off_loop.run(1 << 20, go.wait, 10))
        await asyncio.sleep(0)  # the loop goes on, although the work does not
        go.set()
        assert await waiting
        off_loop.close()

    asyncio.run(run())


def test_an_error_of_the_work_is_raised_here() -> None:
    async def run() -> None:
        off_loop = OffLoop()
        for size in (0, 1 << 20):
            with pytest.raises(ZeroDivisionError):
                await off_loop.run(size, divmod, 1, 0)
        off_loop.close()

    asyncio.run(run())


def test_nothing_begins_after_the_end() -> None:
    async def run() -> None:
        off_loop = OffLoop()
        off_loop.close()
        await off_loop.run(1 << 20, int)
        off_loop.close()
        with pytest.raises(RuntimeError):
            await off_loop.run(1 << 20, int)

    asyncio.run(run())
