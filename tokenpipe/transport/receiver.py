"""Receive frames from a lane: the receiving end, as its owner uses it."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe._core import KIND_LANE, peek
from tokenpipe.errors import FrameError
from tokenpipe.instance import ForkGuard

from . import timing
from .peer import Peer, Role
from .peer_events import PeerEvent
from .port import ReceiverPort
from .receiver_protocol import ReceiverProtocol
from .window import Gap


class LaneReceiver:
    """Receive the frames of one sender, of each of its incarnations in turn.

    In each round the owner calls `lane.peer_events()`, then `lane.recv()`, handles the frames and
    calls `lane.applied()`. `recv` stops at an event and returns nothing more until `peer_events`
    is called. So each frame lies between the PeerUp and the PeerDown of its sender. One thread at
    a time.
    """

    def __init__(
        self,
        port: ReceiverPort,
        *,
        instance: int,
        me: Peer,
        expects: Role | Peer,
        hold_bytes: int,
        alive: Callable[[], bool],
        clock: timing.Clock = time.monotonic,
        gap_timeout_s: float = 1.0,
    ) -> None:
        self.port = port
        self._instance = instance
        self._me = me
        self._clock = clock
        self._guard = ForkGuard()
        self._closed = False
        self._protocol = ReceiverProtocol(
            port,
            instance=instance,
            me=me,
            expects=Role(expects.role, expects.rank),
            alive=alive,
            hold_bytes=hold_bytes,
            gap_timeout_s=gap_timeout_s,
        )

    @property
    def sender(self) -> int:
        """The sender's incarnation, 0 if there is no sender."""
        return self._protocol.sender_state.incarnation

    @property
    def heard(self) -> int:
        """How many pings and ends have come: signs of life without a frame."""
        return self._protocol.heard

    @property
    def counters(self) -> dict[str, int]:
        """Counts of this lane so far, by name (docs/lanes.md)."""
        return self._protocol.count()

    @property
    def position(self) -> tuple[int, int, int, bytes]:
        """Sender (0: none), its `since_ns`, the next number to return, its route: for `resume`."""
        protocol = self._protocol
        state = protocol.sender_state
        return state.incarnation, state.since_ns, protocol.returned + 1, state.route

    def resume(self, sender: int, since_ns: int, expected: int, route: bytes) -> None:
        """Go on if a receiver with this incarnation was, whose process died.

        Call it before anything else. The sender notices nothing.
        """
        self._protocol.resume(sender, since_ns, expected, route, self._clock())

    def recv(self, limit: int = 64) -> list[bytes | Gap]:
        """Return the frames that can be delivered, in order, each once.

        It reads at most `limit` messages. A Gap stands in place of frames that are lost.
        """
        self._guard.check("LaneReceiver")
        protocol = self._protocol
        sender_state = protocol.sender_state
        if sender_state.events or self._closed:
            return []
        out, protocol.ready = protocol.ready, []
        take = self.port.recv_run
        me, instance = self._me.incarnation, self._instance
        while limit > 0:
            window = protocol.window
            before = len(out)
            # The port reads frames in order by itself and returns any other message. No frame has
            # the sender 0, so with it the port returns each message.
            sender = sender_state.incarnation if window.plain else 0
            message = take(limit, (instance, sender, me, window.expected), out)
            window.took(len(out) - before)
            limit -= len(out) - before + 1
            if message is None:
                break
            self._other(*message, out)
            if sender_state.events:
                break
        window = protocol.window
        protocol.returned = window.expected - 1
        if window.expected <= window.known:
            protocol.heal(self._clock())
        return out

    def _other(self, route: bytes, frame: bytes, out: list[bytes | Gap]) -> None:
        """Handle a message that is not the next frame."""
        protocol = self._protocol
        try:
            kind, instance, sender, receiver, seq = peek(frame)
        except FrameError:
            protocol.bad(route, frame)
            return
        me = self._me.incarnation
        if kind == KIND_LANE:
            protocol.hear(route, frame, out, self._clock())
        elif (
            sender == protocol.sender_state.incarnation
            and receiver == me
            and instance == self._instance
        ):
            protocol.window.accept(seq, frame, out)
        else:
            protocol.drop(route, instance, sender, receiver, self._clock())

    def applied(self) -> None:
        """Note that all frames that `recv` has returned are applied."""
        protocol = self._protocol
        protocol.apply()
        if protocol.unacked >= timing.ACK_FRAMES:
            protocol.ack()
        elif protocol.unacked and protocol.ack_due == timing.NEVER:
            protocol.ack_due = self._clock() + timing.ACK_S

    def peer_events(self) -> list[PeerEvent]:
        """Return the sender's events since the last call. Call it before each `recv`."""
        sender_state = self._protocol.sender_state
        events = sender_state.events
        if events:
            sender_state.events = []
        return events

    @property
    def next_deadline(self) -> float:
        """The time at which a round is due; 0 if `peer_events` or `recv` has something now."""
        protocol = self._protocol
        if protocol.sender_state.events or protocol.ready:
            return 0.0
        return protocol.next_deadline

    def is_due(self, now: float) -> bool:
        """Return whether a round has anything to do. A cheap check for frequent callers."""
        if self._closed:
            return False
        return now >= self.next_deadline or self.port.readable()

    def tick(self, now: float) -> None:
        """Do what is due by `now`: acknowledge, ask again, report a loss, check the sender."""
        if not self._closed:
            self._protocol.tick(now)

    def doubt(self, now: float) -> None:
        """Check at once whether the sender lives. Call it when its process has died."""
        if not self._closed and self.sender:
            self._protocol.sender_state.probe(now)

    def close(self) -> None:
        """Tell the sender, then unbind the lane."""
        self._guard.check("LaneReceiver")
        if not self._closed:
            self._closed = True
            self._protocol.bye()
            self.port.close()
