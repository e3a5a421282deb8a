"""Start, watch and restart the processors of a pipeline, as processes or inline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack

from tokenpipe.errors import ProcessorFailed
from tokenpipe.instance import Instance, RoleLock, command_lane, report_lane
from tokenpipe.processor import CONTROL_BYTES, ProcessorService, new_life
from tokenpipe.supervisor import Child, ChildSpec, KeptChildren, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    LaneReceiver,
    LaneSender,
    MemoryLane,
    Peer,
    Role,
    Waiter,
    open_receiver,
    open_sender,
)

from .journal_files import JournalFiles
from .links import ProcessorLink

LOOK_S = 0.5  # between two checks of the processes
_log = logging.getLogger("tokenpipe.pipeline")


class Pool:
    """The processors of one pipeline."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        me: Peer,
        supervisor: Supervisor,
        waiter: Waiter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet. The ports of each processor are added to `waiter`."""
        self.inline = topology.processors.mode == "inline"
        self.services: list[ProcessorService] = []
        self.children: dict[int, Child] = {}
        self._started: list[ProcessorLink] = []
        self._locks: list[RoleLock] = []  # role locks of inline processors
        self._journals: dict[int, JournalFiles] = {}
        self._kept = KeptChildren(supervisor, topology, ProcessorFailed, _log, clock)
        self._look_at = float("inf") if self.inline else 0.0
        self._instance = instance
        self._topology = topology
        self._me = me
        self._waiter = waiter
        self._clock = clock

    def start(self, index: int) -> ProcessorLink:
        """Start processor `index`; return the link to it, which is not ready yet."""
        if self.inline:
            return self._start_inline(index)
        if self._topology.policies.processor == "restart":
            try:
                self._journals[index] = JournalFiles(index, self._instance.directory)
            except OSError as error:
                _log.error("processor %d has no journal, for it cannot be made: %s", index, error)
        return self._start_process(index, self._kept.start)

    def journal(self, index: int) -> JournalFiles | None:
        """Return the journal of a processor, None if it has none."""
        return self._journals.get(index)

    def go_on(self, index: int, also: str) -> None:
        """Restart a dead processor on the lanes that its link has. It goes on from its journal.

        Logs and raises as `start_again` does.
        """
        self._bury(index, also)
        self._kept.start_again(self._spec(index), lambda: self._go_on_late(index))

    def start_again(self, index: int, also: str) -> None:
        """Restart a dead processor without its requests; `take_started` returns its link.

        The log line of the death includes the text `also`. A start that fails is tried again by
        `take_started`. Raises ProcessorFailed if the policies do not allow a restart.
        """
        self._bury(index, also)
        journal = self.journal(index)
        if journal is not None:
            journal.clear()
        self._kept.start_again(self._spec(index), lambda: self._start_late(index))

    def _bury(self, index: int, also: str) -> None:
        died = self.children[index].died
        assert died is not None, f"processor {index} lives"
        self._kept.died(died, also)

    def take_started(self) -> list[ProcessorLink]:
        """Return the links to the processors that were started again, each once.

        Try the starts that failed again. Raises ProcessorFailed if no further one is allowed.
        """
        self._kept.retry()
        started, self._started = self._started, []
        return started

    def _start_late(self, index: int) -> None:
        self._instance.restore()  # the child must find the instance
        self._started.append(self._start_process(index, self._start_in_time))

    def _go_on_late(self, index: int) -> None:
        self._instance.restore()
        self.children[index] = self._start_in_time(self._spec(index))

    def _start_in_time(self, spec: ChildSpec) -> Child:
        return self._kept.start(spec, self._clock() + self._topology.timeouts.startup_s)

    def _spec(self, index: int) -> ChildSpec:
        journal = self.journal(index)
        fds = () if journal is None else journal.fds
        arguments = ["--endpoint", str(self._instance.directory), "--index", str(index)]
        if fds:
            arguments += ["--journal", *map(str, fds)]
        return ChildSpec("processor", str(index), "tokenpipe.processor", tuple(arguments), fds=fds)

    def _start_process(self, index: int, start: Callable[[ChildSpec], Child]) -> ProcessorLink:
        link = self._link(index, *self._open_lanes(index))
        try:
            self.children[index] = start(self._spec(index))
        except BaseException:
            link.close(0.0)
            raise
        return link

    def _open_lanes(self, index: int) -> tuple[LaneSender, LaneReceiver]:
        to = Role("processor", str(index))
        with ExitStack() as undoing:  # opening a lane fails if the directory is gone
            commands = open_sender(
                self._instance,
                command_lane(index),
                me=self._me,
                to=to,
                bound_bytes=CONTROL_BYTES,
                clock=self._clock,
            )
            undoing.callback(commands.close, 0.0)
            reports = open_receiver(
                self._instance,
                report_lane(index),
                me=self._me,
                expects=to,
                max_frame_bytes=CONTROL_BYTES,
                hold_bytes=CONTROL_BYTES,
                gap_timeout_s=self._topology.timeouts.gap_s,
                clock=self._clock,
            )
            undoing.pop_all()
        return commands, reports

    @property
    def problems(self) -> dict[str, str]:
        """The present problems of the processes: `{"processor 0": "no sign of life for 12 s"}`."""
        self._look()
        return self._kept.problems

    @property
    def next_deadline(self) -> float:
        """The time at which `turn` is due next if no message comes."""
        return min((service.next_deadline for service in self.services), default=self._look_at)

    def turn(self) -> None:
        """Run the inline processors; kill late or silent processes."""
        for service in self.services:
            service.turn(0.0)
        if self._clock() >= self._look_at:
            self._look()

    def _look(self) -> None:
        if not self.inline:
            self._look_at = self._clock() + LOOK_S
            self._kept.look()

    def close(self, end: float) -> None:
        """End the inline processors by the time `end`."""
        for service in self.services:
            for port in service.ports:
                self._waiter.remove(port)
            service.close(max(0.0, end - self._clock()))
        for lock in self._locks:
            lock.release()
        for journal in self._journals.values():
            journal.close()

    def _link(self, index: int, commands: LaneSender, reports: LaneReceiver) -> ProcessorLink:
        ranks = self._topology.ranks_of(index)
        return ProcessorLink(
            index,
            ranks,
            commands,
            reports,
            self._waiter,
            self._clock,
        )

    def _start_inline(self, index: int) -> ProcessorLink:
        """Run the service in this process, on lanes in memory."""
        life = new_life(index, self._topology)
        it = Peer("processor", str(index), life.incarnation)
        self._locks.append(self._instance.claim("processor", str(index)))
        command_ends = self._memory_lane(command_lane(index), self._me, it)
        report_ends = self._memory_lane(report_lane(index), it, self._me)
        service = ProcessorService(
            self._instance,
            self._topology,
            index,
            command_ends[1],
            report_ends[0],
            life=life,
            clock=self._clock,
        )
        self.services.append(service)
        for port in service.ports:
            self._waiter.add(port)
        return self._link(index, command_ends[0], report_ends[1])

    def _memory_lane(self, name: str, source: Peer, to: Peer) -> tuple[LaneSender, LaneReceiver]:
        lane = MemoryLane(name)
        receiver = LaneReceiver(
            lane.receiver(),
            instance=self._instance.id,
            me=to,
            expects=source,
            hold_bytes=CONTROL_BYTES,
            alive=lambda: True,
            clock=self._clock,
        )
        sender = LaneSender(
            lane.sender(source.route),
            instance=self._instance.id,
            me=source,
            to=to,
            bound_bytes=CONTROL_BYTES,
            alive=lambda: True,
            clock=self._clock,
        )
        return sender, receiver
