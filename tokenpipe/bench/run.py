"""Run the bench once: the engine in this process, workers and clients as children, one report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenpipe.errors import StartupError, TokenpipeError
from tokenpipe.events import RankUp
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import Supervisor
from tokenpipe.topology import Topology

from .arguments import Arguments
from .bench_engine import BenchEngine
from .bench_processes import BenchFailed, BenchProcesses, living
from .bench_tokenizer import write_tokenizer
from .bench_victims import BenchVictims
from .chaos import Chaos
from .options import Options
from .oracle import VOCAB_SIZE, bits_for
from .progress import Progress, ProgressReporter
from .scratch_files import ScratchFiles
from .shares import make_trace, share_out
from .summary import summarise, with_leftovers
from .traces import Trace

CHILDREN_S = 5.0  # how long children may take to end if a run was stopped early
TURN_S = 0.2
SETTLE_TURN_S = 0.05


class Stopped(TokenpipeError):
    """The caller asked the bench to stop, and the bench has stopped."""


def run(
    options: Options,
    progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run once and return the report (see `summary`).

    `progress` is called ten times a second. `stop` is asked in each turn: if it returns True,
    the run ends and raises Stopped.
    """
    if options.discard:  # no output comes back, so nothing would answer a preemption or an abort
        options = replace(options, preempt_rate=0.0, abort_rate=0.0)
    if options.chaos is not None:
        options = options.for_chaos()
    topology = options.make_topology()
    trace = make_trace(options, topology)
    with tempfile.TemporaryDirectory(prefix="tokenpipe-bench-") as directory:
        files = ScratchFiles(Path(directory))
        topology = _with_tokenizer(options, topology, files)
        with Pipeline(topology) as pipe, Supervisor(files.directory) as children:
            bench = _BenchRun(options, trace, pipe, children, files, stop)
            try:
                bench.start()
                bench.serve(progress)
                bench.settle()
                report = bench.finish()
            finally:
                bench.end_chaos()
                children.stop(CHILDREN_S, pump=bench.answer)
        return with_leftovers(report, Path(pipe.endpoint))


def _with_tokenizer(options: Options, topology: Topology, files: ScratchFiles) -> Topology:
    if not options.text:
        return topology
    write_tokenizer(files.tokenizer)
    return topology.replaced(tokenizer=files.tokenizer)


class _BenchRun:
    def __init__(
        self,
        options: Options,
        trace: Trace,
        pipe: Pipeline,
        children: Supervisor,
        files: ScratchFiles,
        stop: Callable[[], bool],
    ) -> None:
        self._options = options
        self._trace = trace
        self._pipe = pipe
        self._files = files
        self._stop = stop
        self._engine = BenchEngine(pipe, options)
        arguments = Arguments(
            options,
            endpoint=pipe.endpoint,
            files=files,
            slots=pipe.topology.slots_per_rank,
            bits=bits_for(pipe.topology.vocab_size or VOCAB_SIZE),
            lockstep=self._engine.lockstep,
        )
        self._processes = BenchProcesses(children, arguments)
        self._chaos: Chaos | None = None

    def start(self) -> None:
        """Start the workers, wait until all are up, then start the clients."""
        options = self._options
        self._processes.start_workers(self._pipe.topology.workers)
        self._wait_for_ranks()
        shares = share_out(
            self._trace, options.client_count(), options.abort_rate / 2, options.seed
        )
        self._engine.start_measuring()
        self._processes.start_clients(shares)
        if options.chaos is not None:
            victims = BenchVictims(self._pipe, self._processes)
            self._chaos = Chaos(options.faults(), victims, time.monotonic)

    def serve(self, progress: Callable[[Progress], None]) -> None:
        """Run the engine until all clients have ended; with `discard`, until the workers have."""
        role, awaited, counted = "client", self._processes.clients, self._processes.clients
        if self._options.discard:
            role, counted = "worker", self._processes.leaders()
            # A TP rank that does not publish makes no rows, so it ends only with its step lane.
            awaited = self._processes.workers if self._engine.lockstep else counted
        reporter = ProgressReporter(
            progress,
            [self._files.token_count(role, child.spec.rank) for child in counted],
            requests=len(self._trace.arrivals),
            tokens=self._trace.output_tokens,
        )
        while living(awaited):
            self._turn(TURN_S)
            counts = self._engine.scheduler.counts
            reporter.update(counts["Finished"] + counts["Aborted"])

    def settle(self) -> None:
        """Run the engine until each slot is free, or none has become free for a while.

        After a run at full speed, the processors may need some seconds to read the waiting rows.
        """
        if self._options.discard:
            return
        self.end_chaos()
        timeouts = self._pipe.topology.timeouts
        patience_s = timeouts.drained_s + timeouts.close_s
        scheduler = self._engine.scheduler
        least = scheduler.unreleased
        deadline = time.monotonic() + patience_s
        while not scheduler.idle and time.monotonic() < deadline:
            self._turn(SETTLE_TURN_S)
            if scheduler.unreleased < least:
                least = scheduler.unreleased
                deadline = time.monotonic() + patience_s

    def finish(self) -> dict[str, Any]:
        """End the workers, read all reports and add them up."""
        memory_mb, usage = self._engine.memory_mb(), self._engine.usage()
        self._end_workers()
        discard, scheduler = self._options.discard, self._engine.scheduler
        return summarise(
            self._options,
            self._trace,
            self._pipe.topology,
            workers=self._processes.worker_reports(),
            clients=[] if discard else self._processes.client_reports(),
            processor_cpu_s=usage["processor_cpu_s"],
            engine_cpu_s=usage["cpu_s"],
            memory_mb=memory_mb,
            events=dict(scheduler.counts),
            unreleased=0 if discard else scheduler.unreleased,
            faults=None if self._chaos is None else dict(self._chaos.done),
        )

    def end_chaos(self) -> None:
        """Undo the faults that last, so that all processes can end."""
        if self._chaos is not None:
            self._chaos.end()

    def answer(self, timeout_s: float) -> None:
        """Let the Pipeline answer processes that are ending; errors do not matter any more."""
        with suppress(TokenpipeError):
            self._pipe.wait(timeout_s)
            self._pipe.poll()

    def _turn(self, timeout_s: float) -> set[int]:
        """Run one turn of the engine and check all processes; return the ranks that came up."""
        if self._chaos is not None:
            self._chaos.turn()
            timeout_s = min(timeout_s, self._chaos.wait_s)
        events = self._engine.turn(timeout_s)
        self._check()
        return {event.dp_rank for event in events if isinstance(event, RankUp)}

    def _check(self) -> None:
        self._processes.check()
        if self._stop():
            raise Stopped("the bench was asked to stop")

    def _wait_for_ranks(self) -> None:
        missing = set(self._engine.ranks)
        deadline = time.monotonic() + self._pipe.topology.timeouts.startup_s
        while missing:
            if time.monotonic() > deadline:
                raise StartupError(f"DP ranks {sorted(missing)} did not come up")
            missing -= self._turn(0.1)

    def _end_workers(self) -> None:
        self._processes.workers_may_end = True
        self._engine.end_workers()
        # A worker may take close_s to close its lane. On a busy machine its exit takes time too.
        deadline = time.monotonic() + 2 * self._pipe.topology.timeouts.close_s + 5
        while left := living(self._processes.workers):
            if time.monotonic() > deadline:
                names = ", ".join(map(str, left))
                raise BenchFailed(f"{names} did not end after the end of their step lanes")
            self._engine.take_events(SETTLE_TURN_S)
            self._check()
