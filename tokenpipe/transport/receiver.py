"""The receiving end of a lane: put in order, say what is applied, ask for what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe._core import KIND_LANE, peek
from tokenpipe.errors import FrameError
from tokenpipe.instance import ForkGuard

from . import timing
from .peer import Peer, Role
from .peer_events import Change
from .port import ReceiverPort
from .receiver_protocol import Inbox
from .window import Gap


class LaneReceiver:
    """Receive the frames of one sender, each of its lives in turn.

    Each round: `for change in lane.changes()`, then `frames = lane.recv()`, work, `lane.applied()`.
    `recv` stops at a change and returns nothing more until `changes` was called: so every frame
    stands between its sender's PeerUp and PeerDown. One thread at a time.
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
        self._inbox = Inbox(
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
        """The sender's incarnation, 0 where there is none."""
        return self._inbox.visitor.incarnation

    @property
    def heard(self) -> int:
        """Pings and ends heard so far: signs of life without a frame."""
        return self._inbox.heard

    @property
    def counters(self) -> dict[str, int]:
        """What happened on this lane so far, by name."""
        return self._inbox.count()

    def recv(self, limit: int = 64) -> list[bytes | Gap]:
        """Return what can be delivered, in order and once; at most `limit` messages are read.

        A Gap stands where frames are lost for good.
        """
        self._guard.check("LaneReceiver")
        inbox = self._inbox
        visitor = inbox.visitor
        if visitor.changes or self._closed:
            return []
        out, inbox.ready = inbox.ready, []
        take = self.port.recv_run
        me, instance = self._me.incarnation, self._instance
        while limit > 0:
            window = inbox.window
            before = len(out)
            # What comes in order passes in a row; whatever else comes is looked at here. A sender
            # of 0 is none, so that all of it is.
            sender = visitor.incarnation if window.plain else 0
            message = take(limit, (instance, sender, me, window.expected), out)
            window.took(len(out) - before)
            limit -= len(out) - before + 1
            if message is None:
                break
            self._other(*message, out)
            if visitor.changes:
                break
        window = inbox.window
        inbox.returned = window.expected - 1
        if window.expected <= window.known:
            inbox.heal(self._clock())
        return out

    def _other(self, route: bytes, frame: bytes, out: list[bytes | Gap]) -> None:
        """Judge a message that is not simply the next frame."""
        inbox = self._inbox
        try:
            kind, instance, sender, receiver, seq = peek(frame)
        except FrameError:
            inbox.bad(route, frame)
            return
        me = self._me.incarnation
        if kind == KIND_LANE:
            inbox.hear(route, frame, out, self._clock())
        elif sender == inbox.visitor.incarnation and receiver == me and instance == self._instance:
            inbox.window.accept(seq, frame, out)
        else:
            inbox.drop(route, instance, sender, receiver, self._clock())

    def applied(self) -> None:
        """Say that everything `recv` returned so far is applied."""
        inbox = self._inbox
        inbox.apply()
        if inbox.unacked >= timing.ACK_FRAMES:
            inbox.ack()
        elif inbox.unacked and inbox.ack_due == timing.NEVER:
            inbox.ack_due = self._clock() + timing.ACK_S

    def changes(self) -> list[Change]:
        """Return what became of senders since the last call; call it before each `recv`."""
        visitor = self._inbox.visitor
        changes = visitor.changes
        if changes:
            visitor.changes = []
        return changes

    @property
    def next_deadline(self) -> float:
        """When `tick` has something to do; long ago where `changes` or `recv` has something."""
        inbox = self._inbox
        if inbox.visitor.changes or inbox.ready:
            return 0.0
        return inbox.next_deadline

    def is_due(self, now: float) -> bool:
        """Whether a round has anything to do: for who asks often, and mostly in vain."""
        if self._closed:
            return False
        return now >= self.next_deadline or self.port.readable()

    def tick(self, now: float) -> None:
        """Do what is due by `now`: acknowledge, ask again, give up, look after the sender."""
        if not self._closed:
            self._inbox.tick(now)

    def doubt(self, now: float) -> None:
        """Look at once whether the sender lives: somebody has seen it die."""
        if not self._closed and self.sender:
            self._inbox.visitor.probe(now)

    def close(self) -> None:
        """Take the lane down and tell the sender."""
        self._guard.check("LaneReceiver")
        if not self._closed:
            self._closed = True
            self._inbox.bye()
            self.port.close()
