"""Long work lets the loop run after each slice, and not after each piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.conftest import Clock
from tokenpipe.api.slices import SLICE_S, Slices, joined


async def turns_beside(work: object) -> int:
    """Return how often another task ran while `work` was awaited."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await work  # type: ignore[misc]
    task.cancel()
    return turns


@pytest.mark.case("F05")
def test_the_loop_runs_after_each_slice(clock: Clock) -> None:
    def parts(count: int, seconds: float) -> Iterator[str]:
        for _ in range(count):
            clock.advance(seconds)
            yield "ü"

    async def run() -> None:
        assert await turns_beside(joined(parts(10, SLICE_S * 1.01), clock)) == 10
        assert await turns_beside(joined(parts(10, SLICE_S / 2.01), clock)) <= 5
        assert await turns_beside(joined(parts(1000, 0.0), clock)) == 0
        assert await joined(parts(3, 1.0), clock) == "üüü".encode()

    asyncio.run(run())


def test_a_slice_begins_when_the_work_goes_on(clock: Clock) -> None:
    async def run() -> None:
        slices = Slices(clock)
        for _ in range(3):
            clock.advance(SLICE_S * 1.01)
            assert await turns_beside(slices.pause()) == 1
            assert await turns_beside(slices.pause()) == 0

    asyncio.run(run())
