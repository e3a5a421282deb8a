"""The engine of bench_idle: a pipeline, its workers and a small scheduler."""

from __future__ import annotations

import time
from typing import Any

from tokenpipe.engine import EngineLoop, Scheduler
from tokenpipe.events import RankUp
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import ChildSpec, Supervisor

from .processes import START_S, BenchProcess, until

ENGINE_WAIT_S = 0.1


class IdleEngine:
    """Run an engine's loop, `pipe.wait(0.1)` and `pipe.poll()`, for as long as the caller asks."""

    def __init__(self, pipe: Pipeline, children: Supervisor) -> None:
        """Start the workers and wait until all ranks are up."""
        self.pipe = pipe
        self._children = children
        ranks = range(pipe.topology.data_parallel_size)
        lanes = {dp: pipe.step_lane(dp) for dp in ranks}
        scheduler = Scheduler(pipe, lanes, slots=pipe.topology.slots_per_rank)
        self._loop = EngineLoop(pipe, lanes, scheduler)
        self._up: set[int] = set()
        self.workers = [
            children.start(
                ChildSpec(
                    "bench.worker",
                    f"{dp}.{tp}",
                    "tokenpipe.bench.worker",
                    ("--endpoint", pipe.endpoint, "--dp", str(dp), "--tp", str(tp)),
                )
            )
            for dp, tp in pipe.topology.workers
        ]
        until(lambda: self.turn() or len(self._up) == len(ranks), START_S, "all ranks")

    def turn(self) -> bool:
        """Run one turn of an engine's loop; return False."""
        events = self._loop.turn(ENGINE_WAIT_S)
        self._up.update(event.dp_rank for event in events if isinstance(event, RankUp))
        return False

    def receive(self, process: BenchProcess) -> Any:
        """Run until a process sends a message; return the message."""
        until(lambda: self.turn() or process.has_message(), START_S, f"a message of {process.name}")
        return process.receive(1.0)

    def run_for(self, seconds: float) -> None:
        """Run for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def end(self) -> None:
        """Tell the workers that no plan follows, and wait until they have ended."""
        self._loop.end_workers()

        def all_have_ended() -> bool:
            self.pipe.wait(ENGINE_WAIT_S)
            self.pipe.poll()
            self._children.poll()
            return all(child.died is not None for child in self.workers)

        until(all_have_ended, START_S, "the end of the workers")
