"""Open the two ends of a lane of an instance, over ZeroMQ."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe.instance import Instance

from . import timing
from .peer import Peer, Role
from .receiver import LaneReceiver
from .sender import LaneSender
from .zmq_port import ZmqReceiverPort, ZmqSenderPort


def open_sender(
    instance: Instance,
    lane: str,
    *,
    me: Peer,
    to: Role | Peer,
    bound_bytes: int,
    receiver_incarnation: int = 0,
    max_frame_bytes: int = (1 << 32) - 1,
    clock: timing.Clock = time.monotonic,
    alive: Callable[[], bool] | None = None,
) -> LaneSender:
    """Return the sending end of `lane`; it says hello at once and is ready after the welcome.

    `alive` returns whether the receiver lives or will go on. None: whether its role's lock is held.
    """

    def is_alive() -> bool:
        instance.keep()  # a process may have no receiver, whose port keeps the files otherwise
        return instance.alive(to.role, to.rank) if alive is None else alive()

    return LaneSender(
        ZmqSenderPort(instance, lane, me.route, bound_bytes=bound_bytes),
        instance=instance.id,
        me=me,
        to=to,
        bound_bytes=bound_bytes,
        alive=is_alive,
        clock=clock,
        receiver_incarnation=receiver_incarnation,
        max_frame_bytes=max_frame_bytes,
    )


def open_receiver(
    instance: Instance,
    lane: str,
    *,
    me: Peer,
    expects: Role | Peer,
    max_frame_bytes: int,
    hold_bytes: int,
    gap_timeout_s: float = 1.0,
    clock: timing.Clock = time.monotonic,
) -> LaneReceiver:
    """Bind `lane` and return its receiving end. Raises LaneBusy naming who has it."""
    return LaneReceiver(
        ZmqReceiverPort(instance, lane, max_frame_bytes=max_frame_bytes, bound_bytes=hold_bytes),
        instance=instance.id,
        me=me,
        expects=expects,
        hold_bytes=hold_bytes,
        alive=lambda: instance.alive(expects.role, expects.rank),
        clock=clock,
        gap_timeout_s=gap_timeout_s,
    )
