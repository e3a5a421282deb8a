"""The Pipeline: an engine reads events from it and gives it commands."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tokenpipe.errors import LaneClosed, TokenpipeError, afresh
from tokenpipe.events import Event
from tokenpipe.instance import ModelCard, OwnerGuard, close_at_exit
from tokenpipe.postprocess import check_tokenizer
from tokenpipe.topology import Topology
from tokenpipe.types import FIRST_GENERATION, ErrorCode, Request
from tokenpipe.wire import (
    CloseClient,
    Message,
    OpenClient,
    OpenRank,
)
from tokenpipe.worker import StepLane

from .bindings import BindingTable, Entry
from .outcomes import Outcomes
from .reports import Reports
from .resources import Resources
from .step_commands import StepCommands

_STANDARD = ModelCard()


class Pipeline:
    """One running instance, owned by the engine's process.

    Args:
        topology: a `Topology`, the path of a YAML file, or None for the defaults.
        model_card: the request fields that this engine accepts besides the standard ones. With
            None, API servers answer 503 until `set_model_card` is called.

    Raises `ConfigError` for a wrong topology or directory or a missing tokenizer, `LaneBusy` if
    a living instance holds the name, `StartupError` if a processor does not become ready. Only
    one thread may use a pipeline: the first that calls a method after it was made.
    """

    def __init__(
        self,
        topology: Topology | str | os.PathLike[str] | None = None,
        *,
        model_card: ModelCard | None = _STANDARD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if topology is None:
            topology = Topology()
        elif not isinstance(topology, Topology):
            topology = Topology.load(topology)
        check_tokenizer(topology.tokenizer)
        self.topology = topology
        self._guard = OwnerGuard()
        self._clock = clock
        self._events: list[Event] = []
        self._closed = False
        self._fresh = False  # `wait` has done the work of the next `poll`
        # Generations begin at a large random number. So a number that a caller made up, or a
        # handle of an earlier pipeline, is not a valid handle here.
        first = FIRST_GENERATION + secrets.randbelow(FIRST_GENERATION)
        self._table = BindingTable(topology.data_parallel_size, topology.slots_per_rank, first)
        self._outcomes = Outcomes(self._table, topology.policies.max_deaths)
        self._resources = resources = Resources(topology, self._table, self._outcomes, clock)
        self._reports = Reports(self._table, self._outcomes, resources)
        try:
            if model_card is not None:
                self.set_model_card(model_card)
            resources.processors.start(self._turn)
            for dp_rank in range(topology.data_parallel_size):
                self.dispatch(dp_rank, [OpenRank(dp_rank, self._table.floors(dp_rank))])
            resources.announce(self)
            self._guard.release()
        except BaseException:
            self.close(timeout_s=0.0)
            raise

    # --- what an engine reads ---

    @property
    def endpoint(self) -> str:
        """The instance's directory. Workers and clients find the instance by it."""
        return str(self._resources.instance.directory)

    @property
    def log_dir(self) -> Path:
        """The directory of the processors' log files."""
        return self._resources.log_dir

    @property
    def processor_pids(self) -> list[int]:
        """Process ids of the processors; this process's own if they run inline."""
        if self._resources.pool.inline:
            return [os.getpid()]
        return [child.pid for child in self._resources.pool.children.values()]

    def problems(self) -> dict[str, str]:
        """Return the processors and clients that are late or silent, with the reason of each."""
        return {**self._resources.clients.problems, **self._resources.pool.problems}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` may have something.

        Call `poll` also every 100 ms: deadlines make no descriptor readable.
        """
        return self._resources.waiter.fileno()

    def watch(self, fd: int) -> None:
        """Make `wait` return also when this descriptor is readable."""
        self._resources.waiter.watch(fd)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `poll` has an event, at most `timeout_s`. Return False once it is closed.

        `while pipe.wait():` is a loop that ends with the pipeline. An inline processor works inside
        this call, so wait for workers with this call. If a dead processor is not started again,
        raises `ProcessorFailed` once all events are read.
        """
        self._guard.check("Pipeline")
        end = None if timeout_s is None else self._clock() + timeout_s
        while not self._events and not self._closed:
            if (failure := self._reports.failure) is not None:
                raise afresh(failure)
            left = 0.5 if end is None else end - self._clock()
            if left <= 0:
                break
            self._turn(left)
            self._fresh = True
            if self._resources.waiter.called:
                break
        return not self._closed

    def poll(self) -> list[Event]:
        """Return the events since the last call, in order. Never blocks.

        If a dead processor is not started again, raises `ProcessorFailed` once all events are read.
        """
        self._guard.check("Pipeline")
        self._resources.claim.attend()
        if not self._closed and not self._fresh:
            self._work()
        self._fresh = False
        events, self._events = self._events, []
        if (failure := self._reports.failure) is not None and not events:
            raise afresh(failure)
        return events

    # --- what an engine orders ---

    def commands(self, dp_rank: int = 0) -> StepCommands:
        """Collect commands for a DP rank in a `with` block. The end of the block sends them."""
        self._check_open()
        return StepCommands(self._table, self, dp_rank, self.topology.tokenizer is not None)

    def reject(
        self,
        request: Request,
        error: str,
        code: ErrorCode = ErrorCode.INVALID,
        field: str | None = None,
    ) -> None:
        """End a request that is not bound. Its client reads error, code and field.

        `field` names the wrong field of the request, if there is one.

        Raises `ValueError` for ErrorCode.NONE, `TokenpipeError` for a request that is bound.
        """
        self._check_open()
        if code is ErrorCode.NONE:
            raise ValueError("reject: ErrorCode.NONE is not an error")
        entry = self._table.entry(request)
        if entry is None:
            return
        if entry.handle is not None:
            raise TokenpipeError(f"reject: request {request.external_id!r} is bound; abort it")
        self._outcomes.reject(entry, code, error, field or "")
        self._resources.clients.send(self._outcomes.take_final_rows())

    def set_model_card(self, card: ModelCard) -> None:
        """Tell API servers which fields the model accepts; `Request.extra` then has their values.

        Raises OSError if the directory cannot be written; the old card then stays valid.
        """
        self._check_open()
        self._resources.write_model_card(card)

    def step_lane(self, dp_rank: int = 0) -> StepLane:
        """Return the step lane to a DP rank's workers. The first call makes it.

        Raises `ConfigError` for a rank that does not exist.
        """
        self._check_open()
        return self._resources.step_lanes.of(dp_rank)

    def counters(self, timeout_s: float = 1.0) -> dict[str, dict[str, int]]:
        """Return the counters of each processor: `{"processor 0": {"stale": 0, ...}, ...}`.

        docs/operating.md explains the names. The call waits for the answers, at most `timeout_s`.
        A processor that does not answer is missing in the result. The next `poll` returns the
        events that come meanwhile.
        """
        self._check_open()
        deadline = self._clock() + timeout_s
        counts = self._resources.processors.counts
        counts.ask()
        while counts.missing and (left := deadline - self._clock()) > 0:
            self._turn(min(left, 0.05))
        return counts.take()

    def finish(self, timeout_s: float = 5.0) -> list[Event]:
        """Refuse new requests and wait until the live ones have ended. Return the events.

        The engine cannot schedule during this call, so call it when the workers can finish without
        new plans. Requests that have not ended after `timeout_s` stay live.
        """
        self._check_open()
        self._resources.clients.shutting_down = True
        end = self._clock() + timeout_s
        events: list[Event] = []
        while (self._table.requests or self._table.bindings) and self._clock() < end:
            self.wait(min(0.1, max(0.0, end - self._clock())))
            events += self.poll()
        return events

    def close(self, timeout_s: float | None = None) -> None:
        """Close the lanes, the processors and the directory of this pipeline. Idempotent.

        A process that does not end within `timeout_s` (None: the topology's `close_s`) is killed.
        """
        self._guard.check_close("Pipeline")
        if self._closed:
            return
        self._closed = True
        patience = self.topology.timeouts.close_s if timeout_s is None else timeout_s
        self._resources.close(patience)
        self._guard.release()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        close_at_exit(self.close, error)

    # --- Outlet: used by StepCommands ---

    def dispatch(self, dp_rank: int, messages: Sequence[Message]) -> None:
        """Send commands to the processor that owns a DP rank."""
        self._resources.processors.dispatch(dp_rank, messages)

    def incarnation(self, dp_rank: int) -> int:
        """Return the rank's present incarnation, 0 while it is down."""
        return self._table.incarnations[dp_rank]

    def end_unbound(self, entry: Entry) -> None:
        """Abort an unbound request: final output to its client, Aborted to the engine."""
        self._events.append(self._outcomes.end_unbound(entry))
        self._resources.clients.send(self._outcomes.take_final_rows())

    # --- internal ---

    def _check_open(self) -> None:
        self._guard.check("Pipeline")
        if self._closed:
            raise LaneClosed("this Pipeline is closed")

    def _turn(self, timeout_s: float) -> None:
        """Wait for something to do, at most `timeout_s`, and do it."""
        self._resources.claim.attend()
        deadline = self._resources.next_deadline
        left = max(0.0, min(timeout_s, deadline - self._clock()))
        came = self._guard.wait(self._resources.waiter.wait, left)
        if came or self._clock() >= deadline:
            self._work()

    def _work(self) -> None:
        self._resources.pool.turn()
        self._events += self._reports.read()
        for happened in self._resources.clients.serve():
            if isinstance(happened, OpenClient | CloseClient):
                self._resources.processors.broadcast(happened)
            else:
                self._events.append(happened)
        self._resources.step_lanes.poll()
        self._resources.clients.send(self._outcomes.take_final_rows())
        self._resources.pool.turn()
