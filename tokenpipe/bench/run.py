"""Run the bench: an engine here, workers and clients as processes, one verdict at the end."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenpipe.engine import Scheduler
from tokenpipe.errors import StartupError, TokenpipeError
from tokenpipe.events import Event, ProcessorLost, RankUp
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import Child, ChildSpec, Supervisor
from tokenpipe.topology import Topology

from . import traces
from .client_results import NEVER, PlannedRequest
from .options import Options
from .oracle import VOCAB_SIZE, bits_for
from .process_usage import UsageMeter, cpu_s, rss_mb
from .progress import Progress, ProgressReporter
from .summary import summarise
from .text_checker import write_tokenizer

LOCKSTEP_STEPS = 8  # granted at a time
LOCKSTEP_WAIT_S = 0.002
CHILDREN_S = 5.0  # for what runs still at the end of a run, most often one that was broken off
PATIENCE_S = 60.0  # a client without any row, though it has requests, gives up; a slow rate adds


class BenchFailed(TokenpipeError):
    """A process of the bench ended before its time; the message has its last words."""


class Stopped(TokenpipeError):
    """Somebody asked the bench to stop, and it did."""


def run(
    options: Options,
    progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run once and return the report (see `summary`).

    `progress` is called ten times a second; `stop()` is asked all the time, and ends the run with
    Stopped once it is true.
    """
    if options.discard:  # nobody answers a preempted or aborted request there
        options = replace(options, preempt_rate=0.0, abort_rate=0.0)
    topology = options.make_topology()
    trace = _trace(options, topology)
    with (
        tempfile.TemporaryDirectory(prefix="tokenpipe-bench-") as scratch,
        Pipeline(_with_words(options, topology, Path(scratch))) as pipe,
        Supervisor(Path(scratch)) as children,
    ):
        bench = _Bench(options, trace, pipe, children, Path(scratch), progress, stop)
        try:
            bench.start_workers()
            bench.start_clients()
            bench.serve()
            bench.settle()
            return bench.finish()
        finally:
            children.stop(CHILDREN_S, pump=bench.answer)


def _with_words(options: Options, topology: Topology, scratch: Path) -> Topology:
    """Return the topology with a tokenizer where text is asked for."""
    if not options.text:
        return topology
    path = scratch / "tokenizer.json"
    write_tokenizer(path)
    return topology.replaced(tokenizer=path)


def _trace(options: Options, topology: Topology) -> traces.Trace:
    if options.trace is not None:
        return traces.load(options.trace).faster(options.speed_up)
    if options.steps is not None:
        tokens = options.steps * options.tokens_per_row
        slots = topology.slots_per_rank * topology.data_parallel_size
        arrivals = (traces.Arrival(0.0, 0, tokens),) * slots
        return traces.Trace(f"{options.steps} steps", "", arrivals)
    return traces.sample(options.requests, options.seed, options.arrivals)


def deal(
    trace: traces.Trace, clients: int, give_up_rate: float, seed: int
) -> list[list[PlannedRequest]]:
    """Deal a trace out to clients; each gives up so many of its requests, somewhere inside."""
    chance = random.Random(seed)
    shares: list[list[PlannedRequest]] = [[] for _ in range(clients)]
    for index, arrival in enumerate(trace.arrivals):
        leaves = chance.random() < give_up_rate
        at = chance.randrange(arrival.output_tokens) if leaves else NEVER
        shares[index % clients].append(PlannedRequest(arrival.at_s, arrival.output_tokens, at))
    return shares


class _Bench:
    def __init__(
        self,
        options: Options,
        trace: traces.Trace,
        pipe: Pipeline,
        children: Supervisor,
        scratch: Path,
        progress: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> None:
        self.options = options
        self.trace = trace
        self.pipe = pipe
        self.children = children
        self.scratch = scratch
        self.watch = ProgressReporter(progress, len(trace.arrivals), trace.output_tokens)
        self.stop = stop
        self.ending = False
        self.workers: list[Child] = []
        self.clients: list[Child] = []
        self.meter = UsageMeter.start()
        self.processor_cpu = 0.0
        self.ranks = range(pipe.topology.data_parallel_size)
        self.scheduler = Scheduler(
            pipe,
            {dp: pipe.step_lane(dp) for dp in self.ranks},
            slots=pipe.topology.slots_per_rank,
            preempt_rate=options.preempt_rate,
            abort_rate=options.abort_rate / 2,  # the other half the clients do
            seed=options.seed,
        )
        self.bits = bits_for(pipe.topology.vocab_size or VOCAB_SIZE)
        # Ranks whose rows are compared must run the same steps: they run what each plan grants.
        self.lockstep = pipe.topology.tp_policy == "verify"

    def start_workers(self) -> None:
        """Start every rank and wait until all are up."""
        o = self.options
        for dp, tp in self.pipe.topology.workers:
            args = ["--endpoint", self.pipe.endpoint, "--dp", str(dp), "--tp", str(tp)]
            args += ["--tokens-per-row", str(o.tokens_per_row), "--bits", str(self.bits)]
            args += ["--report", str(self._report("worker", f"{dp}.{tp}"))]
            args += ["--tally", str(self._tally("worker", f"{dp}.{tp}"))]
            if o.rate is not None:
                args += ["--rate", str(o.rate)]
            if o.logprobs is not None:
                args += ["--logprobs", str(o.logprobs)]
            if o.discard:
                rows = (o.steps or 0) * self.pipe.topology.slots_per_rank
                args += ["--discard", "--rows", str(rows)]
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
        shares = deal(self.trace, o.client_count(), o.abort_rate / 2, o.seed)
        patience_s = PATIENCE_S + (10 / o.rate if o.rate else 0.0)
        self.processor_cpu = self._processors(cpu_s)
        self.meter = UsageMeter.start()
        for index, share in enumerate(shares):
            work = self.scratch / f"work-{index}.json"
            work.write_text(json.dumps(share))
            args = ["--endpoint", self.pipe.endpoint, "--name", f"bench-{index}"]
            args += ["--work", str(work), "--report", str(self._report("client", str(index)))]
            args += ["--tally", str(self._tally("client", str(index)))]
            args += ["--consume", o.consume, "--bits", str(self.bits)]
            args += ["--patience", str(patience_s)]
            if o.logprobs is not None:
                args += ["--logprobs", str(o.logprobs)]
            if o.text:
                args += ["--text"]
            if o.pin:
                args += ["--pin", "1"]
            self.clients.append(self._start("bench.client", str(index), args))

    def serve(self) -> None:
        """Schedule until every client has what it asked for (discarding: until workers end)."""
        awaited = self.clients
        tallies = [self._tally("client", child.spec.rank) for child in self.clients]
        if self.options.discard:  # the ranks that only follow end when the engine does
            leaders = [w for w in self.workers if w.spec.rank.endswith(".0")]
            awaited = self.workers if self.lockstep else leaders
            tallies = [self._tally("worker", child.spec.rank) for child in leaders]
        while any(child.died is None for child in awaited):
            now = time.monotonic()
            due = self.scheduler.next_deadline
            self._events(0.2 if due is None else max(0.0, min(0.2, due - now)))
            counts = self.scheduler.counts
            self.watch.look(counts["Finished"] + counts["Aborted"], tallies)

    def settle(self) -> None:
        """Schedule until every slot is free again, or none has come free for a while.

        After a flood the processors may have seconds of rows before them.
        """
        if self.options.discard:
            return
        timeouts = self.pipe.topology.timeouts
        patience_s = timeouts.marker_s + timeouts.close_s
        least = self.scheduler.unreleased
        deadline = time.monotonic() + patience_s
        while not self.scheduler.idle and time.monotonic() < deadline:
            self._events(0.05)
            if self.scheduler.unreleased < least:
                least = self.scheduler.unreleased
                deadline = time.monotonic() + patience_s

    def answer(self, timeout_s: float) -> None:
        """Answer those who leave; nothing more is ordered, and what goes wrong now is no news."""
        with suppress(TokenpipeError):
            self.pipe.wait(timeout_s)
            self.pipe.poll()

    def finish(self) -> dict[str, Any]:
        """End the workers in order, read every report, add them up."""
        rss = {
            "engine": rss_mb(),
            "processor": self._processors(rss_mb),
        }
        processor_cpu = self._processors(cpu_s) - self.processor_cpu
        engine = self.meter.spent()
        self.ending = True
        for dp in self.ranks:
            self.pipe.step_lane(dp).end()
        # Closing its lane may take a worker close_s; on a busy machine its exit takes time, too.
        self._await_workers(time.monotonic() + 2 * self.pipe.topology.timeouts.close_s + 5)
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
            unreleased=0 if self.options.discard else self.scheduler.unreleased,
        )

    def _events(self, timeout_s: float) -> list[Event]:
        self.pipe.wait(min(timeout_s, LOCKSTEP_WAIT_S) if self.lockstep else timeout_s)
        events = self.pipe.poll()
        now = time.monotonic()
        self.scheduler.handle(events, now)
        if not self.lockstep:
            self.scheduler.schedule(now)
        elif not (self.scheduler.idle or self._behind()):
            self.scheduler.schedule(now, LOCKSTEP_STEPS)
        self._look_after(events)
        return events

    def _behind(self) -> bool:
        """Whether a rank has not taken its last plan: what is granted on top would only pile up."""
        return any(self.pipe.step_lane(dp).unread for dp in self.scheduler.ranks_up)

    def _start(self, role: str, rank: str, args: list[str]) -> Child:
        return self.children.start(ChildSpec(role, rank, f"tokenpipe.{role}", tuple(args)))

    def _await_workers(self, deadline: float) -> None:
        while living := [child for child in self.workers if child.died is None]:
            if time.monotonic() > deadline:
                names = ", ".join(map(str, living))
                raise BenchFailed(f"{names} did not end though the step lanes did")
            self.pipe.wait(0.05)
            events = self.pipe.poll()
            self.scheduler.handle(events, time.monotonic())  # nothing more is ordered
            self._look_after(events)

    def _look_after(self, events: list[Event]) -> None:
        """Raise where one of our processes, or a processor, is gone, or where we are to stop."""
        for event in events:
            if isinstance(event, ProcessorLost):
                raise BenchFailed(f"processor {event.processor} was lost: {event.reason}")
        for died in self.children.poll():
            if died.returncode != 0 or not self._may_end(died.child):
                early = " before its time" if died.returncode == 0 else ""
                raise BenchFailed(f"{died.child} ended with {died.reason}{early}:\n{died.log_tail}")
        if self.stop():
            raise Stopped("the bench was asked to stop")

    def _may_end(self, child: Child) -> bool:
        if child in self.clients:
            return self._report("client", child.spec.rank).exists()
        return self.ending or self.options.discard

    def _report(self, role: str, rank: str) -> Path:
        return self.scratch / f"report-{role}-{rank}.json"

    def _tally(self, role: str, rank: str) -> Path:
        return self.scratch / f"tally-{role}-{rank}"

    def _read(self, role: str, child: Child) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._report(role, child.spec.rank).read_text())
        return report

    def _processors(self, measure: Callable[[int], float]) -> float:
        return sum(measure(pid) for pid in self.pipe.processor_pids)
