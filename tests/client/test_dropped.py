"""Clients that are let go without being closed: places are free again, and the engine knows."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen, serve
from tests.conftest import eventually
from tokenpipe.client import AsyncClient, Client
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Cancel


def is_told(engine: FakeEngine, count: int) -> bool:
    return eventually(lambda: len(engine.gone) >= count)


def test_a_client_that_is_let_go_gives_its_place_back(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, serve) as engine:
        for count in range(1, 6):  # there are two places
            client = Client(engine.endpoint, name="same")
            with pytest.warns(ResourceWarning, match="Client 0 was collected without close"):
                del client
            assert is_told(engine, count)


def test_a_place_that_is_taken_again_at_once_has_its_output(runtime_dir: Path) -> None:
    """What its engine had open to the one before is still closing, and connects once more."""
    with fake_engine(runtime_dir, serve) as engine:
        for _ in range(8):
            for _ in range(3):
                with pytest.warns(ResourceWarning, match="Client 0 was collected without close"):
                    Client(engine.endpoint, name="same")
            with Client(engine.endpoint, name="same") as client:
                stream = client.generate([1], SamplingParams(max_tokens=3))
                assert sum(len(out.token_ids) for out in stream) == 3


def test_whoever_has_a_stream_has_its_client(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, serve) as engine:
        stream = Client(engine.endpoint).generate([1], SamplingParams(max_tokens=30))
        gc.collect()
        assert sum(len(out.token_ids) for out in stream) == 30
        with pytest.warns(ResourceWarning, match="Client 0 was collected"):
            del stream
        assert is_told(engine, 1)


def test_a_fork_gives_nothing_back(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, serve) as engine, Client(engine.endpoint) as client:
        pid = os.fork()
        if pid == 0:
            before = client._cancel_release
            del client
            gc.collect()
            os._exit(0 if before is not None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert list(client.generate([1], SamplingParams(max_tokens=3))) and not engine.gone


@pytest.mark.parametrize("where", ["loop", "thread", "later"])
def test_an_async_client_that_is_let_go_gives_its_place_back(runtime_dir: Path, where: str) -> None:
    async def opened(engine: FakeEngine) -> list[AsyncClient]:
        client = AsyncClient(engine.endpoint, name="same")
        await client.open()
        async for _ in client.generate([1], SamplingParams(max_tokens=3)):
            pass
        return [client]

    async def let_go(held: list[AsyncClient]) -> None:
        with pytest.warns(
            ResourceWarning, match="AsyncClient 0 was collected without close"
        ) as warned:
            if where == "thread":
                await asyncio.to_thread(held.clear)
            else:
                held.clear()
            while not warned:  # a collection that another thread is in the midst of begins no other
                if where == "thread":
                    await asyncio.to_thread(gc.collect)
                else:
                    gc.collect()
                await asyncio.sleep(0.001)

    async def main(engine: FakeEngine) -> list[AsyncClient]:
        held = await opened(engine)
        if where != "later":
            await asyncio.wait_for(let_go(held), 20.0)
            assert await asyncio.to_thread(is_told, engine, 1)
            async with AsyncClient(engine.endpoint, name="same") as again:
                assert again.index == 0
        return held

    with fake_engine(runtime_dir, serve) as engine:
        held = asyncio.run(main(engine))
        if where == "later":  # its loop is closed, another runs
            asyncio.run(asyncio.wait_for(let_go(held), 20.0))
            assert is_told(engine, 1)


def test_a_task_that_waits_keeps_its_client_and_goes_with_it(runtime_dir: Path) -> None:
    async def first(engine: FakeEngine) -> None:
        stream = (await opened(engine)).generate([1])
        async for _ in stream:
            pass

    async def opened(engine: FakeEngine) -> AsyncClient:
        client = AsyncClient(engine.endpoint)
        await client.open()
        return client

    async def main(engine: FakeEngine) -> None:
        task = asyncio.create_task(first(engine))
        assert await asyncio.to_thread(eventually, lambda: engine.heard)
        gc.collect()
        assert not engine.gone
        with pytest.warns(ResourceWarning, match="AsyncClient 0 was collected"):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            while not engine.gone:
                await asyncio.sleep(0.01)
                gc.collect()
        assert [type(message) for message in engine.heard[1:]] in ([], [Cancel])

    with fake_engine(runtime_dir, only_listen) as engine:
        asyncio.run(asyncio.wait_for(main(engine), 20.0))
