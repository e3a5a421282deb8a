"""Run the bench's engine: a Pipeline, and a scheduler that preempts and aborts at random."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.engine import EngineLoop
from tokenpipe.events import Event, ProcessorLost, ProcessorRestarted
from tokenpipe.pipeline import Pipeline

from .bench_processes import BenchFailed
from .options import Options
from .process_usage import UsageMeter, cpu_s, rss_mb
from .random_scheduler import RandomScheduler

LOCKSTEP_STEPS = 8  # that one plan allows


class BenchEngine:
    """The engine of one run. `turn` takes the events that are there and sends the next plans.

    With `tp_policy: verify` the rows of TP ranks are compared, so these run the same steps: the
    loop is in lockstep then.
    """

    def __init__(self, pipe: Pipeline, options: Options) -> None:
        self.pipe = pipe
        self.ranks = range(pipe.topology.data_parallel_size)
        self.lockstep = pipe.topology.tp_policy == "verify"
        self._may_lose = options.chaos is not None
        lanes = {dp: pipe.step_lane(dp) for dp in self.ranks}
        self.scheduler = RandomScheduler(
            pipe,
            lanes,
            slots=pipe.topology.slots_per_rank,
            preempt_rate=options.preempt_rate,
            abort_rate=options.abort_rate / 2,  # the clients cancel the other half
            seed=options.seed,
        )
        self._loop = EngineLoop(
            pipe, lanes, self.scheduler, lockstep=self.lockstep, grant=LOCKSTEP_STEPS
        )
        self.start_measuring()

    def turn(self, timeout_s: float) -> list[Event]:
        """Wait for events, handle them and order what follows; return the events.

        BenchFailed if a processor was lost in a run without chaos.
        """
        return self._checked(self._loop.turn(self.scheduler.wait_s(timeout_s)))

    def take_events(self, timeout_s: float) -> list[Event]:
        """Wait for events and handle them, but order nothing. BenchFailed as for `turn`."""
        return self._checked(self._loop.take_events(timeout_s))

    def end_workers(self) -> None:
        """Tell each worker that no plan follows."""
        self._loop.end_workers()

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

    def _sum_of_processors(self, measure: Callable[[int], float]) -> float:
        return sum(measure(pid) for pid in self.pipe.processor_pids)

    def _checked(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, ProcessorLost | ProcessorRestarted) and not self._may_lose:
                raise BenchFailed(f"processor {event.processor} was lost: {event.reason}")
        return events
