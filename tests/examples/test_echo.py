"""The README's engine gives slots back, and survives aborts and the death of its worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from examples.echo import ask, serve
from tokenpipe import (
    Aborted,
    AsyncClient,
    FinishReason,
    Pipeline,
    RankLost,
    Released,
    RequestOutput,
    Rescheduled,
    SamplingParams,
    Topology,
)

ROOT = Path(__file__).parents[2]
PATIENCE_S = 40.0
WORK = "import sys; from examples.echo import work; work(sys.argv[1])"


class Watched(Pipeline):
    """A pipeline that keeps the events that it gave; markers have longer than the tests."""

    def __init__(self, runtime_dir: Path, slots: int) -> None:
        self.seen: list[Any] = []
        super().__init__(
            Topology(
                runtime_dir=runtime_dir,
                slots_per_rank=slots,
                processors={"mode": "inline"},
                timeouts={"drained_s": 3 * PATIENCE_S},
            )
        )

    def poll(self) -> list[Any]:
        events = super().poll()
        self.seen += events
        return events

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]

    def serve_until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        serve(self, lambda: not fact() and time.monotonic() < deadline)
        assert fact(), self.seen[-20:]


class Clients(threading.Thread):
    """A client's coroutine in a thread of its own; `result` is there when it has ended."""

    def __init__(self, talk: Coroutine[Any, Any, Any]) -> None:
        super().__init__(name="clients")
        self._talk = talk
        self.start()

    def run(self) -> None:
        self.result = asyncio.run(self._talk)

    def over(self) -> bool:
        return not self.is_alive()


def start(pipe: Pipeline) -> subprocess.Popen[bytes]:
    """Run `work` as a process of its own."""
    return subprocess.Popen([sys.executable, "-c", WORK, pipe.endpoint], cwd=ROOT)


@contextmanager
def worker(pipe: Pipeline) -> Iterator[None]:
    """Have a worker that ends by itself when the pipeline does, which is closed by then."""
    process = start(pipe)
    try:
        yield
        pipe.close()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def echo(prompt: list[int], tokens: int) -> list[int]:
    return list(islice(cycle(prompt), tokens))


def test_more_requests_than_slots_are_served_and_every_slot_comes_back_drained(
    runtime_dir: Path,
) -> None:
    async def many() -> list[list[int]]:
        return await asyncio.gather(*(ask(pipe.endpoint, [n, n + 1]) for n in range(7)))

    with Watched(runtime_dir, slots=2) as pipe, worker(pipe):
        clients = Clients(many())
        # The last Released comes before a drained row's deadline, which is past our patience.
        pipe.serve_until(lambda: clients.over() and len(pipe.of(Released)) == 7)
        assert clients.result == [echo([n, n + 1], 10) for n in range(7)]
        assert {event.reason for event in pipe.of(Released)} == {"drained"}


def test_requests_are_aborted_with_a_slot_and_without(runtime_dir: Path) -> None:
    async def give_up() -> tuple[list[RequestOutput], RequestOutput, list[int]]:
        async with AsyncClient(pipe.endpoint) as client:
            endless = SamplingParams(max_tokens=1 << 30)
            running = client.generate([5], endless, request_id="running")
            begun = await anext(running)
            waiting = client.generate([6], endless, request_id="waiting")
            client.abort("waiting")
            without_slot = [out async for out in waiting]
            client.abort("running")
            rest = [out async for out in running]
            assert begun.token_ids[0] == 5
        return without_slot, rest[-1], await ask(pipe.endpoint, [7, 8])

    with Watched(runtime_dir, slots=1) as pipe, worker(pipe):
        clients = Clients(give_up())
        pipe.serve_until(lambda: clients.over() and len(pipe.of(Released)) == 2)
        without_slot, last, after = clients.result
        assert [out.finish_reason for out in without_slot] == [FinishReason.ABORT]
        assert last.finish_reason == FinishReason.ABORT
        assert after == echo([7, 8], 10)
        assert [event.handle is None for event in pipe.of(Aborted)] == [True, False]
        assert {event.reason for event in pipe.of(Released)} == {"drained"}


def test_requests_go_on_in_the_next_life_of_a_worker_that_was_killed(runtime_dir: Path) -> None:
    tokens, begun = 60_000, threading.Event()

    async def one(client: AsyncClient, n: int) -> list[int]:
        got: list[int] = []
        async for out in client.generate([n, 9], SamplingParams(max_tokens=tokens)):
            got += out.token_ids
            begun.set()
        return got

    async def three() -> list[list[int]]:
        async with AsyncClient(pipe.endpoint) as client:
            return await asyncio.gather(*(one(client, n) for n in range(3)))

    with Watched(runtime_dir, slots=2) as pipe, ExitStack() as lives:
        first = start(pipe)
        lives.callback(first.wait)
        lives.callback(first.kill)
        clients = Clients(three())
        second: list[int] = []

        def served() -> bool:
            if begun.is_set():
                first.kill()
            if pipe.of(RankLost) and not second:
                second.append(1)
                lives.enter_context(worker(pipe))
            return clients.over() and len(pipe.of(Released)) == 3 + len(pipe.of(Rescheduled))

        pipe.serve_until(served)
        assert clients.result == [echo([n, 9], tokens) for n in range(3)]
        assert pipe.of(Rescheduled) and {event.reason for event in pipe.of(Rescheduled)} == {
            "rank_lost"
        }
        reasons = Counter(event.reason for event in pipe.of(Released))
        assert reasons == {"rank_lost": len(pipe.of(Rescheduled)), "drained": 3}
