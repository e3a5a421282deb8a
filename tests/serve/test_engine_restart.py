"""The engine's process dies and is started again: what has output ends, what waits goes on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import Running, gone
from tokenpipe import AsyncClient, Client, ErrorCode, FinishReason, LaneLost, SamplingParams

NOTICED_S = 2.0
SLOTS = 2
KEYS: dict[str, Any] = {
    "slots_per_rank": SLOTS,
    "policies": {"engine": "restart", "restarts": 1000},
}
LONG = SamplingParams(max_tokens=1_000_000)


def short(seed: int) -> SamplingParams:
    """Return the parameters of a request that has the same output each time."""
    return SamplingParams(max_tokens=20, seed=seed)


def kill_engine(server: Running) -> float:
    """Kill the engine; return when."""
    victim = server.pid("tp:engine 0")
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: gone(victim))
    return time.monotonic()


@pytest.mark.case("B45")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moments", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_callers_that_wait_are_served_by_the_next_engine(
    tmp_path: Path, runtime_dir: Path, moments: int
) -> None:
    chance = random.Random(moments)
    with Running(tmp_path, runtime_dir, **KEYS) as server:
        right = [call(server, seed) for seed in range(4)]
        for caller in right:
            caller.join(30)
            assert caller.done, caller.error
        for _ in range(moments):
            begun = [Caller(server, 1_000_000) for _ in range(SLOTS)]
            moment = chance.randint(1, 50)
            assert eventually(lambda b=begun, m=moment: all(c.tokens >= m for c in b), 20.0)  # type: ignore[misc]
            waiting = [call(server, seed) for seed in range(4)]
            assert eventually(lambda: server.ready()["waiting"] == 4)
            died = kill_engine(server)
            for caller in begun:
                caller.join(20)
                assert caller.error["code"] == "lost", (caller.error, caller.failed)
                assert caller.ended - died < NOTICED_S
            for caller, same in zip(waiting, right, strict=True):
                caller.join(60)
                assert caller.done, (caller.error, caller.failed)
                assert ids(caller) == ids(same)
            assert eventually(server.is_ready, 30.0)
        log = (server.log_dir / "api-0.log").read_text()
        assert log.count("the engine is gone") == log.count("the engine is back") == moments


def call(server: Running, seed: int) -> Caller:
    return Caller(server, 20, seed=seed)


def ids(caller: Caller) -> list[int]:
    return [token for choice in caller.choices for token in choice["token_ids"]]


def test_an_async_client_attaches_again_by_itself(tmp_path: Path, runtime_dir: Path) -> None:
    async def main(server: Running) -> None:
        async with AsyncClient(runtime_dir / "it", name="mine") as client:
            right = [out async for out in client.generate([1], short(7))]
            begun = [client.generate([1], LONG) for _ in range(SLOTS)]
            for stream in begun:
                await anext(stream)
            waiting = [client.generate([1], short(7)) for _ in range(3)]
            aborted, dropped = client.generate([1], LONG, "mine"), client.generate([1], LONG)
            await asyncio.sleep(0)
            died = await asyncio.to_thread(kill_engine, server)
            for stream in begun:
                last = [out async for out in stream][-1]
                assert last.error_code is ErrorCode.LOST and "engine 0 is dead" in str(last.error)
            assert time.monotonic() - died < NOTICED_S
            assert isinstance(client.away, LaneLost) and client.lost is None
            late = client.generate([1], short(7))  # nobody is there to take it yet
            assert client.abort("mine") == 1
            assert [out.finish_reason async for out in aborted] == [FinishReason.ABORT]
            del dropped, stream
            for stream in (*waiting, late, client.generate([1], short(7))):
                outputs = [out async for out in stream]
                assert tokens(outputs) == tokens(right), outputs[-1].error
                assert outputs[-1].finish_reason is FinishReason.LENGTH
            assert client.away is None and client.open_requests == 0
            assert await asyncio.to_thread(eventually, server.idle)

    with Running(tmp_path, runtime_dir, **KEYS) as server:
        asyncio.run(asyncio.wait_for(main(server), 60.0))


def tokens(outputs: list[Any]) -> list[int]:
    return [token for out in outputs for token in out.token_ids]


def test_a_client_attaches_again_by_itself(tmp_path: Path, runtime_dir: Path) -> None:
    with (
        Running(tmp_path, runtime_dir, **KEYS) as server,
        Client(runtime_dir / "it", name="mine") as client,
    ):
        right = list(client.generate([1], short(7)))
        begun = [client.generate([1], LONG) for _ in range(SLOTS)]
        for stream in begun:
            next(stream)
        waiting = client.generate([1], short(7))
        died = kill_engine(server)
        for stream in begun:
            assert list(stream)[-1].error_code is ErrorCode.LOST
        assert time.monotonic() - died < NOTICED_S
        assert tokens(list(waiting)) == tokens(right)
        assert eventually(server.is_ready, 30.0)
        kill_engine(server)
        assert tokens(list(client.generate([1], short(7)))) == tokens(right)  # it did not look yet


def test_columns_say_once_that_the_engine_was_lost(tmp_path: Path, runtime_dir: Path) -> None:
    with (
        Running(tmp_path, runtime_dir, **KEYS) as server,
        Client(runtime_dir / "it", name="mine") as client,
    ):
        client.submit([1], LONG)
        next(iter(client.frames()))
        died = kill_engine(server)
        with pytest.raises(LaneLost, match="the engine is gone"):
            for _ in client.frames(timeout_s=20.0):
                pass
        assert time.monotonic() - died < NOTICED_S
        key = client.submit([1], short(7))
        got = 0
        for frame in client.frames(timeout_s=30.0):
            assert set(frame.keys.tolist()) == {key}
            got += int(frame.counts.sum())
            if frame.finish.any():
                break
        assert got == 20


def test_clients_give_up_at_the_deadline(tmp_path: Path, runtime_dir: Path) -> None:
    """The server is killed as a whole, so no engine comes."""

    async def wait_for_nobody() -> None:
        async with AsyncClient(runtime_dir / "it") as client:
            begun, waiting = client.generate([1], LONG), client.generate([1], LONG)
            await anext(begun)
            ready.set()
            last = [out async for out in begun][-1]
            other = [out async for out in waiting][-1]
            assert last.error_code is other.error_code is ErrorCode.LOST
            assert "no engine was there within 1 s" in str(other.error)
            with pytest.raises(LaneLost, match="no engine was there"):
                client.generate([1])
            assert isinstance(client.lost, LaneLost)

    ready, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            asyncio.run(asyncio.wait_for(wait_for_nobody(), 30.0))
        except BaseException as error:
            failed.append(error)

    keys = {**KEYS, "slots_per_rank": 1, "timeouts": {"recover_s": 1.0}}
    with Running(tmp_path, runtime_dir, **keys) as server:
        waiting = threading.Thread(target=run)
        waiting.start()
        assert ready.wait(20)
        with Client(runtime_dir / "it") as client:
            stream = client.generate([1], LONG)
            server.kill()
            last = list(stream)[-1]
            assert last.error_code is ErrorCode.LOST and "no engine was there" in str(last.error)
            with pytest.raises(LaneLost):
                client.generate([1])
        waiting.join(30)
        assert not failed, failed
    for path in sorted(runtime_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
