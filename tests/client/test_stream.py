"""How consumers wait: waiters, cancellation, contexts, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.client.frames import Row, output_frame
from tokenpipe import _core
from tokenpipe._core import Inbox, Stream
from tokenpipe.types import ErrorCode

Main = Callable[["Feeder"], Coroutine[Any, Any, None]]


class Feeder:
    """An inbox in the running loop; feeds and wakes as a client does, outside of any task."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.dropped: list[int] = []
        self.inbox = Inbox(1 << 20, self.loop, lambda key, _: self.dropped.append(key))

    def stream(self, key: int) -> Stream:
        return Stream(self.inbox, key, f"r{key}")

    def feed(self, *rows: Row) -> None:
        self.inbox.feed(output_frame(*rows))
        self.loop.call_soon(self.inbox.wake, True)


def run(main: Main, debug: bool = False) -> None:
    async def with_feeder() -> None:
        await main(Feeder())

    asyncio.run(with_feeder(), debug=debug)
    gc.collect()
    kinds = (Stream, _core.Inbox, type_named("StreamWaiter"), type_named("StreamNext"))
    assert not [thing for thing in gc.get_objects() if type(thing) in kinds]


def type_named(name: str) -> type:
    found = getattr(_core, name)
    assert isinstance(found, type)
    return found


async def read(stream: Stream) -> list[int]:
    return [token async for out in stream for token in out.token_ids]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("debug", [False, True])
def test_a_consumer_parks_and_goes_on(debug: bool) -> None:
    async def main(feeder: Feeder) -> None:
        task = asyncio.create_task(read(feeder.stream(1)))
        for i in range(5):
            await turns()
            feeder.feed(Row(1, 2 * i, [i, i]))
            feeder.feed(Row(1, 2 * i + 2, [], finish=2 if i == 4 else 0))
        assert await task == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert feeder.dropped == []

    run(main, debug)


def test_tasks_in_plain_python_are_served_too() -> None:
    async def main(feeder: Feeder) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.tasks._PyTask(read(feeder.stream(1)), loop=loop)  # type: ignore[attr-defined]
        await turns()
        feeder.feed(Row(1, 0, [1]))
        await turns()
        feeder.feed(Row(1, 1, [2], 2))
        assert await task == [1, 2]

    run(main)


def test_each_consumer_runs_in_its_own_context() -> None:
    name = contextvars.ContextVar("name", default="nobody")

    async def main(feeder: Feeder) -> None:
        async def consume(stream: Stream, me: str) -> list[str]:
            name.set(me)
            return [name.get() async for _ in stream]

        tasks = [asyncio.create_task(consume(feeder.stream(i), f"c{i}")) for i in (1, 2)]
        await turns()
        for at in range(3):
            rows = [Row(key, at, [0], 2 if at == 2 else 0) for key in (1, 2)]
            feeder.feed(*rows)
            await turns()
        assert [await task for task in tasks] == [["c1"] * 3, ["c2"] * 3]
        assert name.get() == "nobody"

    run(main)


def test_cancelling_while_parked_and_while_being_woken_loses_nothing() -> None:
    async def main(feeder: Feeder) -> None:
        stream = feeder.stream(1)
        for when in ("parked", "before the wake", "after the wake"):
            task = asyncio.ensure_future(anext(stream))
            await turns()
            if when == "before the wake":
                feeder.feed(Row(1, stream.received, [7]))
            if when == "after the wake":
                feeder.feed(Row(1, stream.received, [7]))
                feeder.inbox.wake()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if when != "parked":
                assert (await anext(stream)).token_ids == [7]
        assert feeder.dropped == []
        stream.drop()
        assert feeder.dropped == [1]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main)


def test_one_may_wait_where_another_was_just_cancelled() -> None:
    async def main(feeder: Feeder) -> None:
        stream = feeder.stream(1)
        first = asyncio.ensure_future(anext(stream))
        await turns()
        first.cancel()  # its task hears of it in the next turn
        feeder.inbox.feed(output_frame(Row(1, 0, [1])))
        item = stream.take()
        second = asyncio.ensure_future(anext(stream))
        await turns()
        assert first.cancelled() and item is not None
        feeder.feed(Row(1, 1, [2], 2))
        assert (await second).token_ids == [2]

    run(main)


def test_a_second_consumer_is_refused_and_does_not_disturb_the_first() -> None:
    async def main(feeder: Feeder) -> None:
        stream = feeder.stream(1)
        task = asyncio.create_task(read(stream))
        await turns()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        unused = stream.__anext__()
        unused.close()  # type: ignore[attr-defined]
        feeder.feed(Row(1, 0, [3], 1))
        assert await task == [3]

    run(main)


def test_a_consumer_may_do_anything_while_it_is_being_woken() -> None:
    async def main(feeder: Feeder) -> None:
        other = asyncio.create_task(read(feeder.stream(2)))

        async def busy(stream: Stream) -> int:
            count = 0
            async for _ in stream:
                feeder.inbox.feed(output_frame(Row(2, count, [count], 2 if count == 2 else 0)))
                feeder.inbox.wake(True)  # inside of a task, inside of a wake
                new = feeder.stream(100 + count)
                new.drop()
                count += 1
            return count

        task = asyncio.create_task(busy(feeder.stream(1)))
        await turns()
        for at in range(3):
            feeder.feed(Row(1, at, [0], 2 if at == 2 else 0))
            await turns()
        assert await task == 3
        assert await other == [0, 1, 2]

    run(main)


def test_one_that_stops_the_loop_leaves_the_others_to_be_woken() -> None:
    async def main(feeder: Feeder) -> None:
        class Stop(BaseException):
            pass

        async def stop(stream: Stream) -> None:
            async for _ in stream:
                raise Stop

        bad = asyncio.create_task(stop(feeder.stream(1)))
        good = asyncio.create_task(read(feeder.stream(2)))
        await turns()
        feeder.inbox.feed(output_frame(Row(1, 0, [1]), Row(2, 0, [2], 1)))
        seen: list[BaseException] = []

        def wake() -> None:
            try:
                feeder.inbox.wake(True)
            except KeyboardInterrupt as error:
                seen.append(error)

        async def interrupt(stream: Stream) -> None:
            async for _ in stream:
                raise KeyboardInterrupt

        third = asyncio.create_task(interrupt(feeder.stream(3)))
        fourth = asyncio.create_task(read(feeder.stream(4)))
        await turns()
        feeder.inbox.feed(output_frame(Row(3, 0, [1]), Row(4, 0, [2], 1)))
        feeder.loop.call_soon(wake)
        await turns()
        assert len(seen) == 1 and third.done() and not fourth.done()
        feeder.loop.call_soon(wake)
        assert await fourth == [2] and await good == [2]
        assert isinstance(bad.exception(), Stop)
        assert isinstance(third.exception(), KeyboardInterrupt)

    run(main)


def test_a_busy_consumer_gives_way() -> None:
    async def main(feeder: Feeder) -> None:
        stream = feeder.stream(1)
        seen: list[str] = []

        async def consume() -> None:
            for at in range(40):
                feeder.inbox.feed(output_frame(Row(1, at, [at])))
                await anext(stream)
                seen.append("item")

        feeder.loop.call_soon(lambda: feeder.loop.call_soon(seen.append, "other"))
        await asyncio.create_task(consume())
        assert "other" in seen[:20]

    run(main)


def test_a_consumer_that_left_does_not_take_the_wait_of_the_next_one() -> None:
    """The first was woken, and is cancelled before it runs; the second waits by then."""

    async def main(feeder: Feeder) -> None:
        stream = feeder.stream(1)
        first = stream.__anext__().__await__()
        assert next(first) is not None
        feeder.feed(Row(1, 0, [1]))
        await turns()
        assert (await anext(stream)).token_ids == [1]
        second = asyncio.create_task(read(stream))
        await turns()
        first.close()
        feeder.feed(Row(1, 1, [2], finish=2))
        assert await asyncio.wait_for(second, 5) == [2]

    run(main)


def test_a_feed_within_a_feed_is_refused() -> None:
    inbox = Inbox(1 << 20)
    streams = [Stream(inbox, key, "r") for key in range(1, 1000)]
    ends = output_frame(*(Row(key, 0, [5], finish=2) for key in range(1, 1000)))
    refused: list[RuntimeError] = []

    class Finalized:
        """Feeds the inbox when the garbage collector finds it."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            try:
                inbox.feed(ends)
            except RuntimeError as error:
                refused.append(error)

    Finalized()
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        notes = inbox.feed(ends)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert notes is not None and len(notes) in (999, 0)
    assert all("is running" in str(error) for error in refused)
    assert [stream.take().token_ids for stream in streams if stream.received] == [[5]] * 999  # type: ignore[union-attr]


def test_without_a_loop_a_stream_cannot_be_awaited() -> None:
    stream = Stream(Inbox(1000), 1, "r")
    awaitable = stream.__anext__()
    with pytest.raises(RuntimeError, match="asynchronous"):
        awaitable.send(None)  # type: ignore[attr-defined]


def test_wrong_arguments_are_refused() -> None:
    inbox = Inbox(1000)
    with pytest.raises(TypeError):
        Stream(object(), 1, "r")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        Stream(inbox, -1, "r")
    stream = Stream(inbox, 1, "r")
    with pytest.raises(ValueError, match="in use"):
        Stream(inbox, 1, "r")
    with pytest.raises(ValueError, match="positive"):
        Inbox(0)
    with pytest.raises(ValueError, match="finish"):
        stream.end(9, 0, "")
    with pytest.raises(ValueError, match="error code"):
        stream.end(4, len(ErrorCode), "")
    with pytest.raises(TypeError, match="one argument at most, not 2"):
        stream.take(1, 2)  # type: ignore[call-arg]
    with pytest.raises(OverflowError):
        stream.take(-1)
    assert stream.take(1 << 40) is None
    assert inbox.find(1) is stream and inbox.find(2) is None and len(inbox) == 1


def test_ten_thousand_streams_are_found_and_forgotten() -> None:
    inbox = Inbox(1000)
    streams = {key: Stream(inbox, key, "r") for key in range(5 << 32, (5 << 32) + 10_000)}
    for key in list(streams)[::3]:
        streams.pop(key)
    assert len(inbox) == len(streams) == len(inbox.streams())
    assert all(inbox.find(key) is stream for key, stream in streams.items())
    streams.clear()
    assert len(inbox) == 0 and inbox.streams() == []
