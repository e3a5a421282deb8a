"""Make, watch and remake the processors of a pipeline, as processes or inline."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from tokenpipe.instance import Instance, RoleLock, command_lane, report_lane
from tokenpipe.processor import CONTROL_BYTES, ProcessorService
from tokenpipe.supervisor import Budget, Child, ChildSpec, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    LaneReceiver,
    LaneSender,
    MemoryLane,
    Peer,
    Role,
    Waiter,
    new_incarnation,
    open_receiver,
    open_sender,
)

from .links import ProcessorLink


class Pool:
    """The processors of one pipeline and the engine's links to them."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        me: Peer,
        supervisor: Supervisor,
        waiter: Waiter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet; the ports of what is started stand in `waiter`."""
        self.inline = topology.processors.mode == "inline"
        self.services: list[ProcessorService] = []
        self.children: dict[int, Child] = {}
        self._claims: list[RoleLock] = []  # of inline processors
        self._policies = topology.policies
        self._budget = Budget(self._policies.restarts, self._policies.within_s)
        self._instance = instance
        self._topology = topology
        self._me = me
        self._supervisor = supervisor
        self._waiter = waiter
        self._clock = clock

    def start(self, index: int) -> ProcessorLink:
        """Start processor `index` and return the link to it, not yet ready."""
        if self.inline:
            return self._start_inline(index)
        to = Role("processor", str(index))
        with ExitStack() as undoing:  # where the directory is gone
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
        link = self._link(index, commands, reports)
        try:
            self.children[index] = self._supervisor.start(
                ChildSpec(
                    role="processor",
                    rank=str(index),
                    module="tokenpipe.processor",
                    args=("--endpoint", str(self._instance.directory), "--index", str(index)),
                )
            )
        except BaseException:
            link.close(0.0)
            raise
        return link

    @property
    def next_deadline(self) -> float:
        """When `turn` is due next without anything having come."""
        return min((service.next_deadline for service in self.services), default=float("inf"))

    def turn(self) -> None:
        """Have the inline processors do what there is to do."""
        for service in self.services:
            service.turn(0.0)

    def close(self, end: float) -> None:
        """End the inline processors by the time `end`."""
        for service in self.services:
            for port in service.ports:
                self._waiter.remove(port)
            service.close(max(0.0, end - self._clock()))
        for claim in self._claims:
            claim.release()

    def refusal(self, index: int) -> str | None:
        """Say why a dead processor is not started again; None takes one restart and allows it."""
        if self._policies.processor == "fail":
            return "policies.processor: fail"
        if self._budget.take(str(index), self._clock()):
            return None
        return f"it dies again and again: {self._budget}"

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
        """Join the same service to the engine by memory instead of sockets."""
        it = Peer("processor", str(index), new_incarnation())
        self._claims.append(self._instance.claim("processor", str(index)))
        command_ends = self._memory_lane(command_lane(index), self._me, it)
        report_ends = self._memory_lane(report_lane(index), it, self._me)
        service = ProcessorService(
            self._instance,
            self._topology,
            index,
            command_ends[1],
            report_ends[0],
            incarnation=it.incarnation,
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
