"""An engine in this thread with real workers as processes and clients in threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenpipe import (
    AsyncClient,
    ErrorCode,
    Event,
    FinishReason,
    Pipeline,
    SamplingParams,
    Topology,
)
from tokenpipe.bench.oracle import sequence
from tokenpipe.engine import EngineLoop, Scheduler
from tokenpipe.supervisor import Child, ChildSpec, Supervisor

PATIENCE_S = 30.0


@dataclass
class Answer:
    """What one request got."""

    key: int
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    error: str = ""
    code: ErrorCode = ErrorCode.NONE

    @property
    def right(self) -> bool:
        """Whether the tokens are the oracle's, from the first on."""
        return self.tokens == sequence(self.key, 0, len(self.tokens))


class Asking(threading.Thread):
    """A client in a thread: asks for all of `lengths` at once, or submits and waits for `go`."""

    def __init__(self, endpoint: str, lengths: list[int]) -> None:
        super().__init__(name="asking")
        self.answers: list[Answer] = []
        self.failure: BaseException | None = None
        self._endpoint = endpoint
        self._lengths = lengths
        self.start()

    @property
    def got(self) -> int:
        """Tokens so far."""
        return sum(len(answer.tokens) for answer in self.answers)

    def run(self) -> None:
        try:
            asyncio.run(self._ask())
        except BaseException as failure:
            self.failure = failure

    async def _ask(self) -> None:
        async with AsyncClient(self._endpoint) as client:
            await asyncio.gather(*(self._one(client, length) for length in self._lengths))

    async def _one(self, client: AsyncClient, length: int) -> None:
        stream = client.generate([1], SamplingParams(max_tokens=length))
        answer = Answer(stream.key)  # type: ignore[union-attr]
        self.answers.append(answer)
        async for out in stream:
            answer.tokens += out.token_ids
            answer.reason, answer.error = out.finish_reason, out.error or ""
            answer.code = out.error_code


class Engine:
    """Pipeline, scheduler and worker processes; everything happens in `until`."""

    def __init__(self, pipe: Pipeline, logs: Path, rate: float) -> None:
        self.pipe = pipe
        self.events: list[Event] = []
        self.workers: dict[tuple[int, int], Child] = {}
        self.supervisor = Supervisor(logs)
        lanes = {dp: pipe.step_lane(dp) for dp in range(pipe.topology.data_parallel_size)}
        self.scheduler = Scheduler(pipe, lanes, slots=pipe.topology.slots_per_rank)
        self._loop = EngineLoop(pipe, lanes, self.scheduler)
        self._rate = rate

    def start_worker(self, dp: int, tp: int) -> None:
        args = ["--endpoint", self.pipe.endpoint, "--dp", str(dp), "--tp", str(tp)]
        args += ["--rate", str(self._rate)]
        spec = ChildSpec("worker", f"{dp}.{tp}", "tokenpipe.bench.worker", tuple(args))
        self.workers[dp, tp] = self.supervisor.start(spec)

    def turn(self) -> None:
        self.events += self._loop.turn(0.02)

    def until(self, fact: Callable[[], object], patience_s: float = PATIENCE_S) -> float:
        """Serve until the fact holds; returns how long it took."""
        begin = time.monotonic()
        while not fact():
            assert time.monotonic() - begin < patience_s, self.events[-20:]
            self.turn()
        return time.monotonic() - begin

    def join(self, asking: Asking) -> list[Answer]:
        """Serve until a client is through."""
        self.until(lambda: not asking.is_alive())
        if asking.failure is not None:
            raise asking.failure
        return asking.answers

    def seen(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def engine(topology: Topology, logs: Path, rate: float = 500.0) -> Iterator[Engine]:
    """Run an engine with all workers up; everything is ended when the block is left."""
    with Pipeline(topology) as pipe:
        running = Engine(pipe, logs, rate)
        try:
            for dp, tp in topology.workers:
                running.start_worker(dp, tp)
            ranks = topology.data_parallel_size
            running.until(lambda: running.scheduler.counts["RankUp"] == ranks)
            yield running
            for dp in range(ranks):
                pipe.step_lane(dp).end()
            running.until(lambda: running.supervisor.poll() or not running.supervisor.living)
        finally:
            running.supervisor.close(0.0)
