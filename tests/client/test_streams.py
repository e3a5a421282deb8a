"""What a consumer iterates over: one sample or several, awaited or waited for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.client.frames import Row, output_frame
from tokenpipe._core import Inbox
from tokenpipe.client.streams import AsyncSamples, AsyncStream, SyncStream
from tokenpipe.types import RequestOutput

ABORT = 3


class Feeder:
    """An inbox in the running loop, and two samples."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        dropped: list[int] = []
        self.dropped = dropped  # streams that outlive this rig still find it
        self.inbox = Inbox(1 << 20, self.loop, lambda key, _: dropped.append(key))
        self.streams = [AsyncStream(self.inbox, key, "r", key - 1) for key in (1, 2)]
        self.samples = AsyncSamples(self.streams, self.loop)

    def feed(self, *rows: Row) -> None:
        self.inbox.feed(output_frame(*rows))
        self.loop.call_soon(self.inbox.wake, True)


def run(main: Callable[[Feeder], Coroutine[Any, Any, None]]) -> None:
    async def with_feeder() -> None:
        await main(Feeder())

    asyncio.run(with_feeder())


def said(out: RequestOutput) -> tuple[int, list[int]]:
    return out.index, out.token_ids


async def parked(coroutine: Coroutine[Any, Any, RequestOutput]) -> asyncio.Task[RequestOutput]:
    """Start it and let it wait."""
    task = asyncio.create_task(coroutine)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_samples_are_given_by_turns_so_that_a_busy_one_holds_up_no_other() -> None:
    async def main(feeder: Feeder) -> None:
        got = []
        feeder.feed(Row(1, 0, [10]), Row(2, 0, [20]))
        got.append(said(await feeder.samples.__anext__()))
        feeder.feed(Row(1, 1, [11]))
        got.append(said(await feeder.samples.__anext__()))
        got.append(said(await feeder.samples.__anext__()))
        assert got == [(0, [10]), (1, [20]), (0, [11])]

    run(main)


def test_they_end_when_all_have_ended() -> None:
    async def main(feeder: Feeder) -> None:
        task = await parked(feeder.samples.__anext__())
        feeder.feed(Row(2, 0, [20], 2))
        assert said(await task) == (1, [20])
        task = await parked(feeder.samples.__anext__())
        feeder.feed(Row(1, 0, [10], 2))
        assert said(await task) == (0, [10])
        assert [out async for out in feeder.samples] == []
        assert feeder.dropped == []

    run(main)


def test_cancelling_who_waits_loses_nothing_and_leaves_no_one_parked() -> None:
    async def main(feeder: Feeder) -> None:
        task = await parked(feeder.samples.__anext__())
        future = weakref.ref(task._fut_waiter)  # type: ignore[attr-defined]
        task.cancel()
        feeder.feed(Row(1, 0, [10]))
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)  # the loop's own hold of it
        gc.collect()
        assert future() is None
        assert said(await feeder.samples.__anext__()) == (0, [10])
        task = await parked(feeder.streams[1].__anext__())  # type: ignore[arg-type]
        feeder.feed(Row(2, 0, [20]))
        assert said(await task) == (1, [20])

    run(main)


def test_closing_gives_up_what_has_not_ended() -> None:
    async def main(feeder: Feeder) -> None:
        feeder.feed(Row(1, 0, [10], 2))
        assert said(await feeder.samples.__anext__()) == (0, [10])
        await feeder.samples.aclose()
        assert feeder.dropped == [2]
        assert [out async for out in feeder.samples] == []
        await feeder.samples.aclose()
        assert feeder.dropped == [2]

    run(main)


def test_closing_one_stream_gives_it_up_once() -> None:
    async def main(feeder: Feeder) -> None:
        first, second = feeder.streams
        feeder.feed(Row(1, 0, [10], 2))
        assert [said(out) async for out in first] == [(0, [10])]
        for stream in (first, second, second):
            await stream.aclose()
        assert feeder.dropped == [2]

    run(main)


def test_a_sync_stream_waits_only_where_nothing_is_there() -> None:
    dropped: list[int] = []
    inbox = Inbox(1 << 20, None, lambda key, _: dropped.append(key))
    stream = SyncStream(inbox, 1, "r")
    rows = [Row(1, 2, [3]), Row(1, 3, [4], 2)]
    waits: list[int] = []

    def wait() -> None:
        waits.append(stream.received)
        inbox.feed(output_frame(rows.pop(0)))

    stream.wait = wait
    inbox.feed(output_frame(Row(1, 0, [1, 2])))
    assert [out.token_ids for out in stream] == [[1, 2], [3], [4]]
    assert waits == [2, 3] and list(stream) == []
    stream.close()
    assert dropped == []


def test_closing_a_sync_stream_gives_it_up() -> None:
    dropped: list[int] = []
    inbox = Inbox(1 << 20, None, lambda key, _: dropped.append(key))
    stream = SyncStream(inbox, 1, "r")
    inbox.feed(output_frame(Row(1, 0, [1])))
    assert next(stream).token_ids == [1]
    stream.close()
    assert dropped == [1] and list(stream) == []
