"""Who waits for a welcome hears within 2 s that the engine is gone, and stops when told to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tokenpipe import AsyncClient, Client, LaneLost, Pipeline, Publisher, Topology
from tokenpipe.instance import Instance

NOTICED_S = 2.0
ENGINE = """
import sys, threading
from tokenpipe import Pipeline, Topology
pipe = Pipeline(Topology(runtime_dir=sys.argv[1], processors={"mode": "inline"}))
print(pipe.endpoint, flush=True)
threading.Event().wait()  # it welcomes nobody
"""


@contextlib.contextmanager
def deaf_engine(base: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that owns a pipeline and never polls it."""
    command = [sys.executable, "-c", ENGINE, str(base)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        try:
            yield engine, engine.stdout.readline().strip()
        finally:
            engine.kill()


def open_sync(endpoint: str) -> None:
    Client(endpoint).close()


def open_async(endpoint: str) -> None:
    asyncio.run(AsyncClient(endpoint).open())


def open_publisher(endpoint: str) -> None:
    Publisher(endpoint).close()


@pytest.mark.case("F14")
@pytest.mark.parametrize("opens", [open_sync, open_async, open_publisher])
def test_the_engine_dies_while_somebody_waits_for_its_welcome(
    base: Path, opens: Callable[[str], None]
) -> None:
    with deaf_engine(base) as (engine, endpoint):
        failed: list[BaseException] = []

        def run() -> None:
            try:
                opens(endpoint)
            except BaseException as error:
                failed.append(error)

        waiting = threading.Thread(target=run)
        waiting.start()
        locks = {"client0.lock", "worker0.0.lock"}
        assert eventually(lambda: locks & set(os.listdir(endpoint))), os.listdir(endpoint)
        engine.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        waiting.join(20.0)
        assert time.monotonic() - killed < NOTICED_S + 1.0 and not waiting.is_alive()
        assert isinstance(failed[0], LaneLost) and "is gone" in str(failed[0]), failed


def deaf(runtime_dir: Path) -> Pipeline:
    """A pipeline in this thread, which nobody polls from now on."""
    return Pipeline(Topology(runtime_dir=runtime_dir, processors={"mode": "inline"}))


@pytest.mark.case("F14")
def test_a_pipeline_that_is_closed_ends_the_opening_in_its_own_process(runtime_dir: Path) -> None:
    async def main() -> None:
        opening = asyncio.ensure_future(AsyncClient(pipe.endpoint).open())
        await asyncio.sleep(0)
        pipe.close()
        with pytest.raises(LaneLost, match="is gone"):
            await asyncio.wait_for(opening, NOTICED_S)

    pipe = deaf(runtime_dir)
    began, threads = time.monotonic(), threading.active_count()
    asyncio.run(main())
    assert time.monotonic() - began < NOTICED_S + 1.0
    assert threading.active_count() <= threads


@pytest.mark.case("F14")
def test_an_opening_that_is_cancelled_as_its_loop_ends_keeps_nothing(runtime_dir: Path) -> None:
    async def main() -> None:
        asyncio.ensure_future(AsyncClient(pipe.endpoint, name="a").open()).add_done_callback(
            tasks.append
        )
        await asyncio.sleep(0)
        assert held() == ["client0"] and len(sockets()) > before

    def held() -> list[str]:
        instance = Instance.attach(pipe.endpoint)
        return ["client0"] if instance.own("client", "0") is not None else []

    def sockets() -> list[str]:
        return sorted(path.name for path in Path(pipe.endpoint).iterdir() if path.is_socket())

    with deaf(runtime_dir) as pipe:
        tasks: list[asyncio.Future[None]] = []
        before, began, threads = len(sockets()), time.monotonic(), threading.active_count()
        asyncio.run(main())
        assert time.monotonic() - began < NOTICED_S and tasks[0].cancelled()
        assert held() == [] and threading.active_count() <= threads
        assert eventually(lambda: len(sockets()) == before), sockets()


INTERRUPTED = """
import asyncio, sys
from tokenpipe import AsyncClient, Pipeline, Topology
async def main():
    async with AsyncClient(pipe.endpoint):
        pass
with Pipeline(Topology(runtime_dir=sys.argv[1], processors={"mode": "inline"})) as pipe:
    print("opens", flush=True)
    asyncio.run(main())
"""


@pytest.mark.case("F14")
def test_an_interrupt_while_a_client_opens_ends_the_process_at_once(runtime_dir: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(runtime_dir)]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "opens\n"
        assert eventually(lambda: list(runtime_dir.glob("*/client0.lock")))
        child.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        _, said = child.communicate(timeout=40.0)
        assert time.monotonic() - interrupted < NOTICED_S + 1.0
        assert said.strip().endswith("KeyboardInterrupt")
