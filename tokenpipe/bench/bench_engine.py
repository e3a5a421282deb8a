"""Run the bench's engine: a Pipeline, and a scheduler that preempts and aborts at random."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe.engine import Scheduler
from tokenpipe.events import Event, ProcessorLost
from tokenpipe.pipeline import Pipeline

from .bench_processes import BenchFailed
from .options import Options
from .process_usage import UsageMeter, cpu_s, rss_mb

LOCKSTEP_STEPS = 8  # that one plan allows
LOCKSTEP_WAIT_S = 0.002


class BenchEngine:
    """The engine of one run. `turn` takes the events that are there and sends the next plans.

    The TP ranks whose rows are compared must run the same steps. With `tp_policy: verify` a plan
    therefore says how many steps to run, and the next one is sent when all ranks have read it.
    """

    def __init__(self, pipe: Pipeline, options: Options) -> None:
        self.pipe = pipe
        self.ranks = range(pipe.topology.data_parallel_size)
        self.lockstep = pipe.topology.tp_policy == "verify"
        self.scheduler = Scheduler(
            pipe,
            {dp: pipe.step_lane(dp) for dp in self.ranks},
            slots=pipe.topology.slots_per_rank,
            preempt_rate=options.preempt_rate,
            abort_rate=options.abort_rate / 2,  # the clients cancel the other half
            seed=options.seed,
        )
        self.start_measuring()

    def turn(self, timeout_s: float) -> list[Event]:
        """Wait for events, handle them and order what follows; return the events."""
        due = self.scheduler.next_deadline
        if due is not None:
            timeout_s = max(0.0, min(timeout_s, due - time.monotonic()))
        events = self.take_events(min(timeout_s, LOCKSTEP_WAIT_S) if self.lockstep else timeout_s)
        now = time.monotonic()
        if not self.lockstep:
            self.scheduler.schedule(now)
        elif not (self.scheduler.idle or self._behind()):
            self.scheduler.schedule(now, LOCKSTEP_STEPS)
        return events

    def take_events(self, timeout_s: float) -> list[Event]:
        """Wait for events and handle them, but order nothing; return the events.

        BenchFailed where a processor was lost: the bench does not go on without it.
        """
        self.pipe.wait(timeout_s)
        events = self.pipe.poll()
        self.scheduler.handle(events, time.monotonic())
        for event in events:
            if isinstance(event, ProcessorLost):
                raise BenchFailed(f"processor {event.processor} was lost: {event.reason}")
        return events

    def end_workers(self) -> None:
        """Tell each worker that no plan follows."""
        for dp in self.ranks:
            self.pipe.step_lane(dp).end()

    def start_measuring(self) -> None:
        """Count the CPU time of this process and of the processors from now on."""
        self._processor_cpu_s = self._sum_of_processors(cpu_s)
        self._meter = UsageMeter.start()

    def usage(self) -> dict[str, float]:
        """Return cpu_s of this process and processor_cpu_s since `start_measuring`, in seconds."""
        processors = self._sum_of_processors(cpu_s) - self._processor_cpu_s
        return {"cpu_s": self._meter.spent()["cpu_s"], "processor_cpu_s": processors}

    def memory_mb(self) -> dict[str, float]:
        """Return the resident memory of this process and of all processors, in MiB."""
        return {"engine": rss_mb(), "processor": self._sum_of_processors(rss_mb)}

    def _behind(self) -> bool:
        """Return whether a rank has not read its last plan: another one would only wait there."""
        return any(self.pipe.step_lane(dp).unread for dp in self.scheduler.ranks_up)

    def _sum_of_processors(self, measure: Callable[[int], float]) -> float:
        return sum(measure(pid) for pid in self.pipe.processor_pids)
