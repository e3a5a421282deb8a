"""Run the bench: an engine here, workers and clients as processes, one verdict at the end."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenpipe.errors import StartupError, TokenpipeError
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import Child, ChildSpec, Supervisor
from tokenpipe.types import RankUp

from . import traces
from .cpu import Meter, cpu_s, rss_mb
from .options import Options
from .scheduler import Scheduler
from .summary import summarise

LOCKSTEP_STEPS = 8  # granted at a time
LOCKSTEP_WAIT_S = 0.002

Progress = Callable[[int, int], None]


class BenchFailed(TokenpipeError):
    """A process of the bench ended before its time; the message has its last words."""


def run(options: Options, progress: Progress = lambda done, total: None) -> dict[str, Any]:
    """Run once and return the report (see `summary`)."""
    trace = _trace(options)
    topology = options.make_topology()
    with (
        tempfile.TemporaryDirectory(prefix="tokenpipe-bench-") as scratch,
        Pipeline(topology) as pipe,
        Supervisor(Path(scratch)) as children,
    ):
        bench = _Bench(options, trace, pipe, children, Path(scratch), progress)
        bench.start_workers()
        bench.start_clients()
        bench.serve()
        return bench.finish()


def _trace(options: Options) -> traces.Trace:
    if options.trace is not None:
        return traces.load(options.trace).faster(options.speed_up)
    if options.steps is not None:
        tokens = options.steps * options.tokens_per_row
        arrivals = (traces.Arrival(0.0, 0, tokens),) * (options.batch * options.dp)
        return traces.Trace(f"{options.steps} steps", "", arrivals)
    return traces.sample(options.requests, options.seed)


class _Bench:
    def __init__(
        self,
        options: Options,
        trace: traces.Trace,
        pipe: Pipeline,
        children: Supervisor,
        scratch: Path,
        progress: Progress,
    ) -> None:
        self.options = options
        self.trace = trace
        self.pipe = pipe
        self.children = children
        self.scratch = scratch
        self.progress = progress
        self.workers: list[Child] = []
        self.clients: list[Child] = []
        self.meter = Meter.start()
        self.processor_cpu = 0.0
        self.ranks = range(pipe.topology.data_parallel_size)
        self.scheduler = Scheduler(
            pipe,
            {dp: pipe.step_lane(dp) for dp in self.ranks},
            slots=pipe.topology.slots_per_rank,
            preempt_rate=options.preempt_rate,
            abort_rate=options.abort_rate,
            seed=options.seed,
        )
        # Ranks whose rows are compared must run the same steps: they run what each plan grants.
        self.lockstep = pipe.topology.tp_policy == "verify"

    def start_workers(self) -> None:
        """Start every rank and wait until all are up."""
        o = self.options
        for dp, tp in self.pipe.topology.workers:
            args = ["--endpoint", self.pipe.endpoint, "--dp", str(dp), "--tp", str(tp)]
            args += ["--tokens-per-row", str(o.tokens_per_row)]
            args += ["--report", str(self._report("worker", f"{dp}.{tp}"))]
            if o.rate is not None:
                args += ["--rate", str(o.rate)]
            if o.logprobs is not None:
                args += ["--logprobs", str(o.logprobs)]
            if o.discard:
                args += ["--discard", "--steps", str(o.steps)]
            if o.pin:
                args += ["--pin", "0"]
            if self.lockstep:
                args += ["--lockstep"]
            self.workers.append(self._start("bench.worker", f"{dp}.{tp}", args))
        up: set[int] = set()
        deadline = time.monotonic() + self.pipe.topology.timeouts.startup_s
        while len(up) < len(self.ranks):
            if time.monotonic() > deadline:
                raise StartupError(f"DP ranks {sorted(set(self.ranks) - up)} did not come up")
            events = self._events(0.1)
            up.update(e.dp_rank for e in events if isinstance(e, RankUp))

    def start_clients(self) -> None:
        """Deal the trace out to the clients and start them."""
        o = self.options
        shares: list[list[tuple[float, int]]] = [[] for _ in range(o.clients)]
        for index, arrival in enumerate(self.trace.arrivals):
            shares[index % o.clients].append((arrival.at_s, arrival.output_tokens))
        self.processor_cpu = self._processors(cpu_s)
        self.meter = Meter.start()
        for index, share in enumerate(shares):
            work = self.scratch / f"work-{index}.json"
            work.write_text(json.dumps(share))
            args = ["--endpoint", self.pipe.endpoint, "--name", f"bench-{index}"]
            args += ["--work", str(work), "--report", str(self._report("client", str(index)))]
            args += ["--consume", o.consume]
            if o.logprobs is not None:
                args += ["--logprobs", str(o.logprobs)]
            if o.pin:
                args += ["--pin", "1"]
            self.clients.append(self._start("bench.client", str(index), args))

    def serve(self) -> None:
        """Schedule until every client has what it asked for (discarding: until workers end)."""
        total = len(self.trace.arrivals)
        awaited = self.workers if self.options.discard else self.clients
        while any(child.died is None for child in awaited):
            now = time.monotonic()
            due = self.scheduler.next_deadline
            self._events(0.2 if due is None else max(0.0, min(0.2, due - now)))
            counts = self.scheduler.counts
            self.progress(counts["Finished"] + counts["Aborted"], total)

    def finish(self) -> dict[str, Any]:
        """End the workers in order, read every report, add them up."""
        rss = {
            "engine": rss_mb(),
            "processor": self._processors(rss_mb),
        }
        processor_cpu = self._processors(cpu_s) - self.processor_cpu
        engine = self.meter.spent()
        for dp in self.ranks:
            self.pipe.step_lane(dp).end()
        self._await_workers(time.monotonic() + self.pipe.topology.timeouts.close_s + 1)
        return summarise(
            self.options,
            self.trace,
            self.pipe.topology,
            workers=[self._read("worker", child) for child in self.workers],
            clients=[] if self.options.discard else [self._read("client", c) for c in self.clients],
            processor_cpu_s=processor_cpu,
            engine=engine,
            rss=rss,
            events=dict(self.scheduler.counts),
        )

    def _events(self, timeout_s: float) -> list[Any]:
        self.pipe.wait(min(timeout_s, LOCKSTEP_WAIT_S) if self.lockstep else timeout_s)
        events = self.pipe.poll()
        now = time.monotonic()
        self.scheduler.handle(events, now)
        self.scheduler.schedule(now, LOCKSTEP_STEPS if self.lockstep else None)
        self._look_after_children()
        return events

    def _start(self, role: str, rank: str, args: list[str]) -> Child:
        return self.children.start(ChildSpec(role, rank, f"tokenpipe.{role}", tuple(args)))

    def _await_workers(self, deadline: float) -> None:
        while any(child.died is None for child in self.workers):
            if time.monotonic() > deadline:
                raise BenchFailed("a worker did not end though its step lane did")
            self.pipe.wait(0.05)
            self.scheduler.handle(self.pipe.poll(), time.monotonic())  # nothing more is ordered
            self._look_after_children()

    def _look_after_children(self) -> None:
        for died in self.children.poll():
            if died.returncode != 0:
                raise BenchFailed(f"{died.child} ended with {died.reason}:\n{died.log_tail}")

    def _report(self, role: str, rank: str) -> Path:
        return self.scratch / f"report-{role}-{rank}.json"

    def _read(self, role: str, child: Child) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._report(role, child.spec.rank).read_text())
        return report

    def _processors(self, measure: Callable[[int], float]) -> float:
        return sum(measure(pid) for pid in self.pipe.processor_pids)
