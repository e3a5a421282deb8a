"""Show an engine its one face: events in, commands out, everything else behind it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tokenpipe.errors import LaneClosed, ProcessorFailed, StartupError, TokenpipeError
from tokenpipe.plan import plan
from tokenpipe.runners import StepLane
from tokenpipe.supervisor import Died, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    ENDPOINT_VARIABLE,
    ForkGuard,
    Instance,
    Peer,
    Waiter,
    new_incarnation,
)
from tokenpipe.types import (
    AbortRequested,
    ClientLost,
    Event,
    ProcessorLost,
    ProcessorUp,
    RankLost,
    RankUp,
    Request,
    Submitted,
)
from tokenpipe.wire import (
    CloseClient,
    GiveUp,
    Message,
    OpenClient,
    OpenRank,
    RankClosed,
    RankOpened,
    Submit,
)

from .book import Book, Entry
from .clients import ClientLink
from .commands import StepCommands
from .links import ProcessorLink
from .outcomes import Outcomes
from .pool import Pool

DRAINING = "the engine is shutting down"


class Pipeline:
    """One running instance, owned by the engine's process.

    Args:
        topology: a `Topology`, the path of a YAML file, or None for the defaults.

    Raises `ConfigError` for a wrong topology or directory, `LaneBusy` where an explicit name
    is held by a living instance, `StartupError` where a processor does not become ready. All
    of its methods belong to the thread that made it.
    """

    def __init__(
        self,
        topology: Topology | str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if topology is None:
            topology = Topology()
        elif not isinstance(topology, Topology):
            topology = Topology.load(topology)
        self.topology = topology
        self._guard = ForkGuard()
        self._clock = clock
        self._book = Book(topology.data_parallel_size, topology.slots_per_rank)
        self._outcomes = Outcomes(self._book)
        self._incarnations = [0] * topology.data_parallel_size
        self._events: list[Event] = []
        self._step_lanes: dict[int, StepLane] = {}
        self._waiter = Waiter()
        self._starting = True
        self._closed = False
        self._draining = False
        self._previous_endpoint = os.environ.get(ENDPOINT_VARIABLE)
        self._instance = Instance.create(
            topology.runtime_dir,
            topology.name,
            {"topology": topology.to_json_dict()},
            longest_lane=max((lane.socket for lane in plan(topology).lanes), key=len),
        )
        me = Peer("engine", "0", new_incarnation())
        self._log_dir = topology.log_dir or self._instance.directory / "logs"
        self._supervisor = Supervisor(self._log_dir, keep_logs=topology.log_dir is not None)
        self._pool = Pool(self._instance, topology, me, self._supervisor, clock)
        self._links: list[ProcessorLink] = []
        self._clients: list[ClientLink] = []
        self._claim = self._instance.claim("engine", "0")
        try:
            for index in range(topology.clients):
                client = ClientLink(self._instance, topology, index, me, clock)
                self._clients.append(client)
                self._waiter.add(client.submits.port)
            for index in range(topology.processor_count):
                self._links.append(self._pool.start(index))
                self._watch(self._links[-1])
            self._wait_ready()
            self._starting = False
        except BaseException:
            self.close(timeout_s=0.0)
            raise
        os.environ[ENDPOINT_VARIABLE] = self.endpoint

    # --- what an engine reads ---

    @property
    def endpoint(self) -> str:
        """Directory that workers and clients are given to find this instance."""
        return str(self._instance.directory)

    @property
    def processor_pids(self) -> list[int]:
        """Process ids of the processors, this process's own where they run inline."""
        if self._pool.inline:
            return [os.getpid()]
        return [child.pid for child in self._pool.children.values()]

    @property
    def log_dir(self) -> Path:
        """Where the children's output goes."""
        return self._log_dir

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` may have something.

        Call `poll` also every 100 ms: deadlines make no descriptor readable.
        """
        return self._waiter.fileno()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `poll` has something, at most `timeout_s`; False once the pipeline is closed.

        With an inline processor this is where it works: an engine waits for its workers here.
        """
        self._guard.check("Pipeline")
        if self._closed:
            return False
        end = None if timeout_s is None else self._clock() + timeout_s
        while not self._events and not self._closed:
            left = 0.5 if end is None else end - self._clock()
            if left <= 0:
                break
            self._waiter.wait(self._until_deadline(left))
            self._work()
        return not self._closed

    def poll(self) -> list[Event]:
        """Return what happened since the last call, in order; never blocks."""
        self._guard.check("Pipeline")
        if not self._closed:
            self._work()
        events, self._events = self._events, []
        return events

    # --- what an engine orders ---

    def step(self, dp_rank: int = 0) -> StepCommands:
        """Begin a step's commands for a DP rank; they are sent when the `with` block ends."""
        self._check_open()
        return StepCommands(self._book, self, dp_rank)

    def reject(self, request: Request, error: str) -> None:
        """End a request that is not bound with an error; its client reads `error`."""
        self._check_open()
        entry = self._book.entry(request)
        if entry is None:
            return
        if entry.handle is not None:
            raise TokenpipeError(f"reject: request {request.external_id!r} is bound; abort it")
        self._outcomes.reject(entry, error)
        self._send_final_rows()

    def step_lane(self, dp_rank: int = 0) -> StepLane:
        """Return the lane of plans to a DP rank's workers, made at the first call."""
        self._check_open()
        lane = self._step_lanes.get(dp_rank)
        if lane is None:
            lane = StepLane(self._instance, self.topology, dp_rank, clock=self._clock)
            self._step_lanes[dp_rank] = lane
            for port in lane.ports:
                self._waiter.add(port)
        return lane

    def drain(self, timeout_s: float = 5.0) -> list[Event]:
        """Refuse new requests and wait until the live ones have their outcome and final rows.

        The engine goes on stepping only through the events returned here, so call it when the
        workers finish by themselves; what is left after `timeout_s` stays live.
        """
        self._check_open()
        self._draining = True
        end = self._clock() + timeout_s
        events: list[Event] = []
        while (self._book.requests or self._book.bindings) and self._clock() < end:
            self.wait(min(0.1, max(0.0, end - self._clock())))
            events += self.poll()
        return events

    def close(self, timeout_s: float | None = None) -> None:
        """End everything this pipeline owns: lanes, processors, directory. Idempotent."""
        self._guard.check("Pipeline")
        if self._closed:
            return
        self._closed = True
        patience = self.topology.timeouts.close_s if timeout_s is None else timeout_s
        end = self._clock() + patience
        for lane in self._step_lanes.values():
            lane.close(min(0.5, patience))
        for link in self._links:
            if self._pool.inline:  # this very thread would have to answer: no word is waited for
                link.close(0.0)
            else:
                link.close(max(0.0, end - self._clock()))
        self._pool.close(end)
        for client in self._clients:
            client.close(max(0.0, min(1.0, end - self._clock())))
        self._supervisor.close(max(0.0, end - self._clock()))
        self._waiter.close()
        self._claim.release()
        self._instance.close()
        if os.environ.get(ENDPOINT_VARIABLE) == self.endpoint:
            if self._previous_endpoint is None:
                del os.environ[ENDPOINT_VARIABLE]
            else:
                os.environ[ENDPOINT_VARIABLE] = self._previous_endpoint

    def __enter__(self) -> Pipeline:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    # --- Outlet: what a step's commands need ---

    def dispatch(self, dp_rank: int, messages: Sequence[Message]) -> None:
        """Send commands to the processor that owns a DP rank."""
        self._links[self.topology.processor_of(dp_rank)].dispatch(messages)

    def incarnation(self, dp_rank: int) -> int:
        """Return the rank's present incarnation, 0 while it is down."""
        return self._incarnations[dp_rank]

    def end_unbound(self, entry: Entry) -> None:
        """Abort an unbound request: final output to its client, Aborted to the engine."""
        self._events.append(self._outcomes.end_unbound(entry))
        self._send_final_rows()

    # --- the work between ---

    def _check_open(self) -> None:
        self._guard.check("Pipeline")
        if self._closed:
            raise LaneClosed("this Pipeline is closed")

    def _watch(self, link: ProcessorLink) -> None:
        self._waiter.add(link.commands.port)
        self._waiter.add(link.reports.port)
        for service in self._pool.services:
            for port in service.ports:
                self._waiter.add(port)

    def _until_deadline(self, default: float) -> float:
        deadlines = [link.next_deadline for link in self._links]
        deadlines += [client.next_deadline for client in self._clients]
        deadlines += [lane.next_deadline for lane in self._step_lanes.values()]
        deadlines += [service.next_deadline for service in self._pool.services]
        return max(0.0, min(default, min(deadlines) - self._clock()))

    def _wait_ready(self) -> None:
        end = self._clock() + self.topology.timeouts.startup_s
        while not all(link.ready for link in self._links):
            if self._clock() >= end:
                late = [str(link.index) for link in self._links if not link.ready]
                raise StartupError(
                    f"processor {', '.join(late)}: no welcome within "
                    f"{self.topology.timeouts.startup_s} s; its output is in {self._log_dir}"
                )
            self._waiter.wait(self._until_deadline(0.05))
            self._work()

    def _work(self) -> None:
        for service in self._pool.services:
            service.turn(0.0)
        for link in self._links:
            for report in link.poll():
                self._report(report)
        for died in self._supervisor.poll():
            if self._starting:
                raise StartupError(f"{_story(died)} before it was ready")
            self._processor_died(int(died.child.spec.rank), _story(died))
        for client in self._clients:
            self._serve(client)
        for lane in self._step_lanes.values():
            lane.poll()
        self._send_final_rows()
        for service in self._pool.services:
            service.turn(0.0)

    def _report(self, report: Message) -> None:
        match report:
            case RankOpened():
                self._incarnations[report.dp] = report.incarnation
                self._events.append(RankUp(report.dp, report.incarnation))
            case RankClosed():
                self._incarnations[report.dp] = 0
                self._drop_step_lane(report.dp)
                self._events.append(RankLost(report.dp, report.reason))
            case _:
                event = self._outcomes.apply(report)
                if event is not None:
                    self._events.append(event)

    def _drop_step_lane(self, dp_rank: int) -> None:
        lane = self._step_lanes.get(dp_rank)
        if lane is not None:
            for port in lane.ports:
                self._waiter.remove(port)
            lane.reset()
            for port in lane.ports:
                self._waiter.add(port)

    def _serve(self, client: ClientLink) -> None:
        for incarnation, reason in client.changes():
            if incarnation:
                self._broadcast(OpenClient(client.index, incarnation))
                if client.output is not None:
                    self._waiter.add(client.output.port)
            else:
                self._client_lost(client.index, reason)
        for message in client.read():
            match message:
                case Submit():
                    self._submitted(client, message)
                case GiveUp():
                    self._given_up(client, message.key)
                case _:
                    client.bad_messages += 1

    def _submitted(self, client: ClientLink, message: Submit) -> None:
        request = Request(
            internal_id=message.key,
            external_id=message.external_id,
            client=client.index,
            prompt_token_ids=message.prompt_token_ids,
            params=message.params,
            parent=message.parent or None,
            sample_index=message.sample_index,
            extra=message.extra,
        )
        if not self._book.add(request):
            client.bad_messages += 1
        elif self._draining:
            self._outcomes.reject(self._book.requests[message.key], DRAINING)
        else:
            self._events.append(Submitted(request))

    def _given_up(self, client: ClientLink, key: int) -> None:
        entry = self._book.requests.get(key)
        if entry is None or entry.request.client != client.index or entry.abort_requested:
            return
        entry.abort_requested = True
        self._events.append(AbortRequested(entry.request))

    def _client_lost(self, client: int, reason: str) -> None:
        self._broadcast(CloseClient(client))
        self._events.append(ClientLost(client, self._instance.note("client", str(client)), reason))
        for entry in self._book.of_client(client):
            if not entry.abort_requested:
                entry.abort_requested = True
                self._events.append(AbortRequested(entry.request))

    def _processor_died(self, index: int, reason: str) -> None:
        old = self._links[index]
        for port in (old.commands.port, old.reports.port):
            self._waiter.remove(port)
        old.close(0.0)
        self._events.append(ProcessorLost(index, reason))
        error = f"processor {index} was lost: {reason}"
        self._events += self._outcomes.processor_lost(old.ranks, error)
        for dp_rank in old.ranks:
            if self._incarnations[dp_rank]:
                self._report(RankClosed(dp_rank, f"processor {index} was lost"))
        if not self._pool.may_restart(index):
            raise ProcessorFailed(
                f"processor {index} dies again and again; the last time: {reason}"
            )
        link = self._links[index] = self._pool.start(index)
        self._watch(link)
        link.dispatch([OpenRank(dp, self._book.floors(dp)) for dp in link.ranks])
        link.dispatch([OpenClient(c.index, c.client) for c in self._clients if c.client])
        self._events.append(ProcessorUp(index))

    def _broadcast(self, message: Message) -> None:
        for link in self._links:
            link.dispatch([message])

    def _send_final_rows(self) -> None:
        for row in self._outcomes.take_final_rows():
            self._clients[row.client].add(row)
        for client in self._clients:
            client.flush()


def _story(died: Died) -> str:
    tail = f"; its log ends:\n{died.log_tail}" if died.log_tail.strip() else ""
    return f"{died.child} ended with {died.reason}{tail}"
