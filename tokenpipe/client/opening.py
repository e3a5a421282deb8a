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
    ZmqReceiverPort,
    new_incarnation,
    open_sender,
    wait_welcome,
)

from .lanes import Lanes

ENGINE = Role("engine", "0")


def open_lanes(instance: Instance, topology: Topology, name: str) -> Lanes:
    """Lock a name and an index, bind the output lanes, and wait for the engine's welcome.

    Raises LaneBusy with the holder of the name or of the indices, StartupError, LaneLost.
    """
    with ExitStack() as closing:
        closing.callback(instance.close)
        index = claim_place(closing, instance, topology.clients, name)
        me = Peer("client", str(index), new_incarnation())

        outputs = []
        for p in range(topology.processor_count):
            processor = Role("processor", str(p))
            owner = ENGINE if topology.processors.mode == "inline" else processor
            outputs.append(
                _bind(closing, instance, topology, me, output_lane(p, index), processor, owner)
            )
        lane = own_output_lane(index)
        own_output = _bind(closing, instance, topology, me, lane, ENGINE, ENGINE)
        submits = open_sender(
            instance,
            submit_lane(index),
            me=me,
            to=ENGINE,
            bound_bytes=topology.bounds.lane_bytes,
            max_frame_bytes=topology.bounds.max_frame_bytes,
        )
        closing.callback(submits.port.close)
        wait_welcome(submits, instance, ENGINE, topology.timeouts.startup_s)
        return Lanes(
            me=me,
            outputs=outputs,
            own_output=own_output,
            submits=submits,
            closing=closing.pop_all(),
        )


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
