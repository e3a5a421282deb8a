"""Connect a client to an instance: lock its name and an index, and open its lanes."""

from __future__ import annotations

from contextlib import ExitStack
from hashlib import blake2b

from tokenpipe.errors import LaneBusy
from tokenpipe.instance import Instance, output_lane, own_output_lane, submit_lane
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    LaneReceiver,
    Peer,
    Role,
    WelcomeWait,
    ZmqReceiverPort,
    new_incarnation,
    open_sender,
    wait_welcome,
)

from .lanes import Lanes

ENGINE = Role("engine", "0")


class Opening:
    """Lanes of one client that wait for the engine's welcome. Nothing here blocks.

    Call `lanes` until it returns them, in any loop, or `close`.
    """

    def __init__(
        self, instance: Instance, topology: Topology, name: str, incarnation: int = 0
    ) -> None:
        """Lock a name and an index, bind the output lanes, and ask for the engine's welcome.

        `incarnation` is the former one of a client that attaches again. Its keys stay valid. Raises
        LaneBusy with the holder of the name or of the indices.
        """
        with ExitStack() as closing:
            closing.callback(instance.close)
            index = claim_place(closing, instance, topology.clients, name)
            self._me = me = Peer("client", str(index), new_incarnation(incarnation))
            self._outputs: list[LaneReceiver] = []
            for p in range(topology.processor_count):
                processor = Role("processor", str(p))
                owner = ENGINE if topology.processors.mode == "inline" else processor
                self._outputs.append(
                    _bind(closing, instance, topology, me, output_lane(p, index), processor, owner)
                )
            lane = own_output_lane(index)
            self._own_output = _bind(closing, instance, topology, me, lane, ENGINE, ENGINE)
            self.submits = open_sender(
                instance,
                submit_lane(index),
                me=me,
                to=ENGINE,
                bound_bytes=topology.bounds.lane_bytes,
                max_frame_bytes=topology.bounds.max_frame_bytes,
            )
            closing.callback(self.submits.port.close)
            self._wait = WelcomeWait(self.submits, instance, ENGINE, topology.timeouts.startup_s)
            self._closing = closing.pop_all()

    def lanes(self) -> Lanes | None:
        """Return the lanes, None before the welcome.

        Raises LaneLost if the engine is dead, StartupError after `timeouts.startup_s`.
        """
        return self.take() if self._wait.arrived() else None

    @property
    def next_s(self) -> float:
        """The seconds until `lanes` must be called next if `submits` gets no message."""
        return self._wait.next_s

    def take(self) -> Lanes:
        """Return the lanes, which are welcome. The caller closes them."""
        return Lanes(
            me=self._me,
            outputs=self._outputs,
            own_output=self._own_output,
            submits=self.submits,
            closing=self._closing.pop_all(),
        )

    def close(self) -> None:
        """Close all that is open, unless `take` gave it away."""
        self._closing.close()


def open_lanes(instance: Instance, topology: Topology, name: str) -> Lanes:
    """Open the lanes of a client and wait for the engine's welcome.

    Raises LaneBusy with the holder of the name or of the indices, StartupError, LaneLost.
    """
    opening = Opening(instance, topology, name)
    try:
        wait_welcome(opening.submits, instance, ENGINE, topology.timeouts.startup_s)
    except BaseException:
        opening.close()
        raise
    return opening.take()


# An OutputFrame adds columns to each row of a step (a key, an offset, an end), so it may be larger
# than the largest StepFrame.
SPARE_BYTES = 1 << 16


def _bind(
    closing: ExitStack,
    instance: Instance,
    topology: Topology,
    me: Peer,
    lane: str,
    sender: Role,
    owner: Role,
) -> LaneReceiver:
    """Bind an output lane. The sender is alive while `owner` holds its lock."""
    bounds = topology.bounds
    port = ZmqReceiverPort(
        instance,
        lane,
        max_frame_bytes=bounds.max_frame_bytes + SPARE_BYTES,
        bound_bytes=bounds.client_window_bytes,
    )
    closing.callback(port.close)
    return LaneReceiver(
        port,
        instance=instance.id,
        me=me,
        expects=sender,
        hold_bytes=bounds.client_window_bytes,
        alive=lambda: instance.alive(owner.role, owner.rank),
        gap_timeout_s=topology.timeouts.gap_s,
    )


def claim_place(closing: ExitStack, instance: Instance, places: int, name: str) -> int:
    """Lock the name and the first free index; return it. Raises LaneBusy with the holders."""
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    try:
        closing.callback(instance.claim("clientname", digest, name).release)
    except LaneBusy as error:
        raise LaneBusy(f"client name {name!r} is taken: {error}") from None
    busy: list[str] = []
    for index in range(places):
        try:
            closing.callback(instance.claim("client", str(index), name).release)
        except LaneBusy as error:
            busy.append(str(error))
        else:
            return index
    raise LaneBusy(f"all {places} client places are taken: {'; '.join(busy)}")
