"""The asynchronous client against an engine behind real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen, serve, tokens
from tests.client.frames import Row
from tests.conftest import eventually
from tokenpipe.client import AsyncClient, AsyncStream
from tokenpipe.client.client_core import FRAMES_AT_ONCE
from tokenpipe.errors import LaneClosed, LaneLost
from tokenpipe.topology import Topology
from tokenpipe.types import ErrorCode, FinishReason, RequestOutput, SamplingParams
from tokenpipe.wire import Cancel, Submit


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20.0))


async def collect(stream: Any) -> list[RequestOutput]:
    return [out async for out in stream]


def ids(outputs: list[RequestOutput]) -> list[int]:
    return [token for out in outputs for token in out.token_ids]


def params(count: int, n: int = 1) -> SamplingParams:
    return SamplingParams(max_tokens=count, n=n)


async def heard(engine: FakeEngine, count: int) -> None:
    assert await asyncio.to_thread(eventually, lambda: len(engine.heard) >= count)


def test_many_requests_get_their_own_tokens(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint, name="a") as client:
            streams = [client.generate([1, 2], params(20 + i)) for i in range(100)]
            assert all(isinstance(stream, AsyncStream) for stream in streams)
            outputs = await asyncio.gather(*[collect(stream) for stream in streams])
            for i, (stream, outs) in enumerate(zip(streams, outputs, strict=True)):
                assert isinstance(stream, AsyncStream)
                assert ids(outs) == tokens(stream.key, 0, 20 + i)
                assert [out.finished for out in outs] == [False] * (len(outs) - 1) + [True]
                assert outs[-1].usage is not None and outs[-1].usage.completion_tokens == 20 + i
            assert client.open_requests == 0
        await heard(engine, 100)
        assert await asyncio.to_thread(eventually, lambda: engine.gone == [0])

    with fake_engine(runtime_dir, serve) as engine:
        run(main(engine))


def test_samples_come_through_one_iterator(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            outputs = await collect(client.generate([1], params(10, n=3), "r"))
            submits = [m for m in engine.heard if isinstance(m, Submit)]
            for submit in submits:
                mine = [out for out in outputs if out.index == submit.sample_index]
                assert ids(mine) == tokens(submit.key, 0, 10)
            assert len(submits) == 3 and {out.request_id for out in outputs} == {"r"}
            early = client.generate([1], params(10, n=2))
            await anext(early)
            await early.aclose()
            assert client.open_requests == 0

    with fake_engine(runtime_dir, serve) as engine:
        run(main(engine))


@pytest.mark.case("B38")
def test_abort_gives_one_final_output_whatever_is_asked(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            streams = [client.generate([1], params(5), f"r{i}") for i in range(50)]
            tasks = [asyncio.create_task(collect(stream)) for stream in streams]
            for _ in range(100):
                assert client.abort("r1") == 1
                assert client.abort("unknown") == 0
            for i in range(50):
                client.abort(f"r{i}")
            outputs = await asyncio.gather(*tasks)
            assert [len(outs) for outs in outputs] == [1] * 50
            assert {outs[0].finish_reason for outs in outputs} == {FinishReason.ABORT}
            assert client.abort("r1") == 0
        gave_up = [message for message in engine.heard if isinstance(message, Cancel)]
        assert len(gave_up) == 50

    def abort_only(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
        if isinstance(message, Cancel):
            serve(engine, client, message)

    with fake_engine(runtime_dir, abort_only) as engine:
        run(main(engine))


def test_leaving_an_iterator_gives_the_request_up(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            async for _ in client.generate([1], params(100)):
                break
            cancelled = asyncio.create_task(collect(client.generate([1], params(100))))
            await heard(engine, 2)
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            del cancelled
            await heard(engine, 4)
            assert client.open_requests == 0
        keys = [message.key for message in engine.heard]
        assert keys[0] in keys[1:] and sorted(keys)[::2] == sorted(set(keys))

    def first_row_only(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
        if isinstance(message, Submit) and not engine.gone and len(engine.heard) == 1:
            engine.send(client, Row(message.key, 0, [1]))

    with fake_engine(runtime_dir, first_row_only) as engine:
        run(main(engine))


def test_waiting_with_a_timeout_loses_nothing(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            stream = client.generate([1], params(4))
            assert isinstance(stream, AsyncStream)
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.01)
            waiting = asyncio.create_task(collect(stream))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(stream)
            engine.call(lambda: engine.send(0, Row(stream.key, 0, [1, 2, 3, 4], 2)))
            assert ids(await waiting) == [1, 2, 3, 4]

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))


def test_a_parked_task_needs_no_owner(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        done = asyncio.Event()

        async def consume(client: AsyncClient) -> None:
            assert len(ids(await collect(client.generate([1], params(2))))) == 2
            done.set()

        import gc

        async with AsyncClient(engine.endpoint) as client:
            asyncio.get_running_loop().create_task(consume(client))
            await heard(engine, 1)
            gc.collect()
            key = engine.heard[0].key
            engine.call(lambda: engine.send(0, Row(key, 0, [1, 2], 2)))
            await asyncio.wait_for(done.wait(), 5.0)

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))


def test_the_engines_death_reaches_every_consumer_within_two_seconds(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        client = AsyncClient(engine.endpoint)
        await client.open()
        streams = [client.generate([1], params(4)) for _ in range(50)]
        tasks = [asyncio.create_task(collect(stream)) for stream in streams]
        await heard(engine, 50)
        died = time.monotonic()
        engine.fall_silent()
        lasts = [outputs[-1] for outputs in await asyncio.gather(*tasks)]
        assert time.monotonic() - died < 2.0
        assert {(last.error_code, last.error) for last in lasts} == {
            (ErrorCode.LOST, "the engine is gone: engine 0 is dead")
        }
        assert isinstance(client.lost, LaneLost) and client.away is None
        with pytest.raises(LaneLost):
            client.generate([1], params(4))
        await client.aclose()

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))


def test_closing_ends_open_streams_with_an_error(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            task = asyncio.create_task(collect(client.generate([1], params(4))))
            await heard(engine, 1)
        with pytest.raises(LaneClosed):
            await task
        with pytest.raises(LaneClosed):
            client.generate([1], params(4))

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))


@pytest.mark.case("B19")
def test_one_slow_consumer_does_not_harm_the_others(runtime_dir: Path) -> None:
    total = 3000

    def flood(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
        if len([m for m in engine.heard if isinstance(m, Submit)]) < 4:
            return
        keys = [m.key for m in engine.heard if isinstance(m, Submit)]
        if isinstance(message, Submit):
            for at in range(0, total, 10):
                rows = [Row(key, at, tokens(key, at, at + 10)) for key in keys]
                engine.send(client, *rows)
            engine.send(client, *[Row(key, total, [], 2) for key in keys])

    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            slow, *others = [client.generate([1], params(total)) for _ in range(4)]
            outputs = await asyncio.gather(*[collect(stream) for stream in others])
            for stream, outs in zip(others, outputs, strict=True):
                assert isinstance(stream, AsyncStream)
                assert ids(outs) == tokens(stream.key, 0, total)
            last = (await collect(slow))[-1]
            assert last.error is not None and last.error.startswith("slow_consumer")
            assert client.counters["slow_streams"] == 1
            await heard(engine, 5)

    topology = Topology(bounds={"stream_bytes": 4096})
    with fake_engine(runtime_dir, flood, topology) as engine:
        run(main(engine))


@pytest.mark.case("B24")
def test_the_loop_stays_quick_under_many_streams(runtime_dir: Path) -> None:
    steps, streams = 60, 512

    async def main(engine: FakeEngine) -> None:
        worst = 0.0
        async with AsyncClient(engine.endpoint) as client:
            made = [client.generate([1], params(steps)) for _ in range(streams)]
            tasks = [asyncio.create_task(collect(stream)) for stream in made]
            await heard(engine, streams)
            keys = [stream.key for stream in made if isinstance(stream, AsyncStream)]
            for at in range(steps):
                finish = 2 if at == steps - 1 else 0
                rows = [Row(key, at, tokens(key, at, at + 1), finish) for key in keys]
                engine.call(partial(engine.send, 0, *rows))
            while not all(task.done() for task in tasks):
                begin = time.thread_time()  # the loop's own time, whoever else is on the machine
                await asyncio.sleep(0)
                worst = max(worst, time.thread_time() - begin)
            for key, task in zip(keys, tasks, strict=True):
                assert ids(task.result()) == tokens(key, 0, steps)
                assert max(len(out.token_ids) for out in task.result()) <= FRAMES_AT_ONCE
        assert worst < 0.25  # a turn takes a few frames

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))


def test_a_prompt_outside_of_the_vocabulary_is_not_sent(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            with pytest.raises(ValueError, match="100 is outside of vocab_size 100"):
                client.generate([5, 100], params(1))
            assert client.open_requests == 0
            await collect(client.generate([99], params(1)))
        assert [m.prompt_token_ids for m in engine.heard if isinstance(m, Submit)] == [(99,)]

    with fake_engine(runtime_dir, serve, Topology(clients=2, vocab_size=100)) as engine:
        run(main(engine))


def test_what_cannot_be_opened_or_sent_does_not_run(runtime_dir: Path) -> None:
    async def main(engine: FakeEngine) -> None:
        async with AsyncClient(engine.endpoint) as client:
            with pytest.raises(ValueError, match="no output kind 7"):
                client.generate([1], SamplingParams(output_kind=7), "r")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="surrogates not allowed"):
                client.generate([1], SamplingParams(n=2), "\ud800")
            assert client.open_requests == client.counters["cancelled"] == client.abort("r") == 0
            kept = client.generate([1], request_id="r")
            await heard(engine, 1)
            assert client.open_requests == 1
            del kept
        assert len([m for m in engine.heard if isinstance(m, Submit)]) == 1

    with fake_engine(runtime_dir, only_listen) as engine:
        run(main(engine))
