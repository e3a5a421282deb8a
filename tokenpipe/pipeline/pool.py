"""Make, watch and remake the processors of a pipeline, as processes or inline."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe.processor import ProcessorService, make_service
from tokenpipe.supervisor import ChildSpec, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Instance,
    LaneReceiver,
    LaneSender,
    Peer,
    Port,
    command_lane,
    memory_ports,
    receiver_port,
    report_lane,
    sender_port,
)

from .links import ProcessorLink

CONTROL_BYTES = 1 << 26  # commands that a processor has not applied


class Pool:
    """The processors of one pipeline and the engine's links to them."""

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        me: Peer,
        supervisor: Supervisor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet."""
        self.inline = topology.processors.mode == "inline"
        self.services: list[ProcessorService] = []
        self._instance = instance
        self._topology = topology
        self._me = me
        self._supervisor = supervisor
        self._clock = clock

    def start(self, index: int) -> ProcessorLink:
        """Start processor `index` and return the link to it, not yet ready."""
        if self.inline:
            return self._start_inline(index)
        link = self._link(
            index,
            sender_port(self._instance.lane_path(command_lane(index)), self._me),
            receiver_port(self._instance.lane_path(report_lane(index))),
        )
        self._supervisor.start(
            ChildSpec(
                role="processor",
                rank=str(index),
                args=("--endpoint", str(self._instance.directory), "--index", str(index)),
            )
        )
        return link

    def _link(self, index: int, commands: Port, reports: Port) -> ProcessorLink:
        instance, rank = self._instance, str(index)
        alive = (lambda: True) if self.inline else (lambda: instance.alive("processor", rank))
        return ProcessorLink(
            index,
            self._topology.ranks_of(index),
            self._me,
            instance.id,
            LaneSender(
                commands,
                instance=instance.id,
                me=self._me,
                to=("processor", rank),
                bound_bytes=CONTROL_BYTES,
                alive=alive,
                clock=self._clock,
            ),
            LaneReceiver(
                reports,
                instance=instance.id,
                me=self._me,
                expects=("processor", rank),
                hold_bytes=CONTROL_BYTES,
                alive=alive,
                clock=self._clock,
                gap_timeout_s=self._topology.timeouts.gap_s,
            ),
            self._clock,
        )

    def _start_inline(self, index: int) -> ProcessorLink:
        to_processor, at_processor = memory_ports()
        to_engine, at_engine = memory_ports()
        self.services.append(
            make_service(self._instance, self._topology, index, at_processor, to_engine, self._clock)
        )
        return self._link(index, to_processor, at_engine)

