"""The receiving end of a lane: welcome, put in order, say what is applied, ask for the missing."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe._core import peek
from tokenpipe.errors import FrameError

from . import messages, timing
from .changes import Change, PeerDown, PeerEnded, PeerUp
from .door import refusal
from .guard import ForkGuard
from .healing import Healing
from .messages import LANE_KIND, LaneMessage
from .peer import Peer, Role
from .port import ReceiverPort
from .window import Gap, ReceiveWindow


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
        self.sender = 0  # incarnation, 0 where there is none
        self.heard = 0  # pings and ends of senders: signs of life without a frame
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._instance = instance
        self._me = me
        self._expects = Role(expects.role, expects.rank)
        self._hold_bytes = hold_bytes
        self._alive = alive
        self._clock = clock
        self._guard = ForkGuard()
        self._closed = False
        self._route = b""
        self._since_ns = 0
        self._window = ReceiveWindow(1, hold_bytes)
        self._healing = Healing(gap_timeout_s)
        self._changes: list[Change] = []
        self._ready: list[bytes | Gap] = []  # to be returned by the next recv
        self._returned = 0  # the last frame recv returned
        self._end_seq = 0  # one more than the sender's last frame, once it said so
        self._last_ended = (0, 0)  # incarnation, applied: it may ask again
        self._unacked = 0  # applied frames since the last acknowledgement
        self._ack_due = timing.NEVER
        self._probe_due = timing.NEVER
        self._dead_at = timing.NEVER  # when a sender found dead is called down
        self._who_due = 0.0

    @property
    def counters(self) -> dict[str, int]:
        """What happened on this lane so far, by name."""
        counts = dict(self._counts)
        self._count_window(counts)
        return counts

    def _count_window(self, counts: dict[str, int]) -> None:
        counts["duplicate"] += self._window.duplicates
        counts["overflow"] += self._window.overflowed
        counts["gap"] += self._window.lost

    # --- the hot path -------------------------------------------------------------------------

    def recv(self, limit: int = 64) -> list[bytes | Gap]:
        """Return what can be delivered, in order and once; at most `limit` messages are read.

        A Gap stands where frames are lost for good.
        """
        self._guard.check("LaneReceiver")
        if self._changes or self._closed:
            return []
        out = self._ready
        self._ready = []
        take = self.port.recv
        me = self._me.incarnation
        window = self._window
        while limit > 0:
            limit -= 1
            message = take()
            if message is None:
                break
            route, frame = message
            try:
                kind, instance, sender, receiver, seq = peek(frame)
            except FrameError:
                self._bad(route, frame)
                continue
            if kind == LANE_KIND:
                self._hear(route, frame, out)
                window = self._window
                if self._changes:
                    break
            elif sender == self.sender and receiver == me and instance == self._instance:
                window.accept(seq, frame, out)
            else:
                self._drop(route, instance, sender, receiver)
        self._returned = window.expected - 1
        if window.expected <= window.known:
            self._heal(self._clock())
        return out

    def applied(self) -> None:
        """Say that everything `recv` returned so far is applied."""
        self._unacked += self._window.apply(self._returned)
        if self._end_seq:
            self._finish()
        if self._unacked >= timing.ACK_FRAMES:
            self._ack()
        elif self._unacked and self._ack_due == timing.NEVER:
            self._ack_due = self._clock() + timing.ACK_S

    def changes(self) -> list[Change]:
        """Return what became of senders since the last call; call it before each `recv`."""
        changes = self._changes
        if changes:
            self._changes = []
        return changes

    def close(self) -> None:
        """Take the lane down and tell the sender."""
        self._guard.check("LaneReceiver")
        if self._closed:
            return
        self._closed = True
        if self.sender:
            self._say(self._route, self.sender, "bye", applied=self._window.applied)
        self.port.close()

    # --- deadlines ----------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When `tick` has something to do; long ago where `changes` or `recv` has something."""
        if self._changes or self._ready:
            return 0.0
        healing = self._healing
        return min(
            self._ack_due, self._probe_due, self._dead_at, healing.ask_due, healing.give_up_due
        )

    def tick(self, now: float) -> None:
        """Do what is due by `now`: acknowledge, ask again, give up, look after the sender."""
        if self._closed:
            return
        if now >= self._ack_due:
            self._ack()
        if now >= min(self._healing.ask_due, self._healing.give_up_due):
            self._heal(now)
        if now >= self._probe_due:
            self._probe_due = now + timing.PROBE_S
            if self._dead_at == timing.NEVER and not self._alive():
                self._dead_at = now + timing.DEATH_GRACE_S
        if now >= self._dead_at:
            if self.port.readable():  # its last words first
                self._dead_at = now + timing.DEATH_GRACE_S
            else:
                self._down(f"{self._expects} is dead")

    def _heal(self, now: float) -> None:
        window = self._window
        hole = window.missing()
        if hole is not None and now >= self._healing.give_up_due:
            window.give_up(hole[1], self._ready)
            hole = window.missing()
        if self._healing.look(hole, now) and hole is not None:
            self._counts["resend"] += 1
            self._say(self._route, self.sender, "resend", first=hole[0], last=hole[1])

    def _ack(self) -> None:
        self._unacked = 0
        self._ack_due = timing.NEVER
        if self.sender:
            self._say(self._route, self.sender, "ack", applied=self._window.applied)

    def _finish(self) -> None:
        applied = self._window.applied
        if applied + 1 < self._end_seq:
            return
        self._say(self._route, self.sender, "ended", applied=applied)
        self._last_ended = (self.sender, applied)
        self._changes.append(PeerEnded(self.sender))
        self._forget_sender()

    def _down(self, reason: str) -> None:
        self._changes.append(PeerDown(self.sender, reason))
        self._forget_sender()

    def _forget_sender(self) -> None:
        self._count_window(self._counts)
        self._window = ReceiveWindow(1, self._hold_bytes)
        self._returned = 0
        self._healing.look(None, 0.0)
        self.sender = 0
        self._end_seq = self._unacked = 0
        self._ack_due = self._probe_due = self._dead_at = timing.NEVER

    # --- hearing ------------------------------------------------------------------------------

    def _hear(self, route: bytes, frame: bytes, out: list[bytes | Gap]) -> None:
        try:
            message = messages.unpack(frame)
        except FrameError:
            self._bad(route, frame)
            return
        if message.type == "hello":
            self._hello(route, message, out)
        elif message.type not in ("ping", "end") or message.instance != self._instance:
            self._counts["dropped_instance"] += message.instance != self._instance
        elif message.source == self._last_ended[0]:
            self._say(route, message.source, "ended", applied=self._last_ended[1])
        elif message.source != self.sender or message.target != self._me.incarnation:
            self._who(route, message.source)
        else:
            self._announced(message, out)

    def _announced(self, message: LaneMessage, out: list[bytes | Gap]) -> None:
        self.heard += 1
        window = self._window
        window.announce(message.fields["next_seq"], message.fields["first_retained"], out)
        if message.type == "end":
            self._end_seq = message.fields["next_seq"]
            self._finish()
        else:
            self._ack()

    def _hello(self, route: bytes, hello: LaneMessage, out: list[bytes | Gap]) -> None:
        fields = hello.fields
        me = self._me
        against = refusal(
            hello,
            instance=self._instance,
            me=me,
            expects=self._expects,
            since_ns=self._since_ns,
        )
        if against is not None:
            self._counts["refused"] += 1
            self._say(route, hello.source, "refuse", code=against[0], detail=against[1])
            return
        known_to_it = hello.target == me.incarnation
        if hello.source != self.sender:
            if self.sender:
                self._down(f"{self._expects} was restarted")
            self._welcome_new(route, hello, fields["first_retained" if known_to_it else "next_seq"])
        elif known_to_it:
            self._window.announce(fields["next_seq"], fields["first_retained"], out)
        window = self._window
        self._say(
            route,
            hello.source,
            "welcome",
            role=me.role,
            rank=me.rank,
            applied=window.applied,
            expects=window.expected,
        )

    def _welcome_new(self, route: bytes, hello: LaneMessage, first: int) -> None:
        self.sender = hello.source
        self._route = route
        self._since_ns = hello.fields["since_ns"]
        self._window = ReceiveWindow(first, self._hold_bytes)
        self._probe_due = self._clock() + timing.PROBE_S
        self._changes.append(PeerUp(hello.source))

    def _drop(self, route: bytes, instance: int, sender: int, receiver: int) -> None:
        if instance != self._instance:
            self._counts["dropped_instance"] += 1
        elif receiver != self._me.incarnation:
            self._counts["dropped_receiver"] += 1
        else:
            self._counts["dropped_sender"] += 1
        if sender != self.sender and instance == self._instance:
            self._who(route, sender)

    def _bad(self, route: bytes, frame: bytes) -> None:
        self._counts["bad_frames"] += 1
        self.port.realign()
        version = messages.foreign_version(frame)
        if version is not None:
            detail = f"it speaks {messages.VERSION}, not {version}"
            self._say(route, 0, "refuse", code="version", detail=detail)

    def _who(self, route: bytes, source: int) -> None:
        now = self._clock()
        if now >= self._who_due:
            self._who_due = now + timing.WHO_S
            self._say(route, source, "who")

    def _say(self, route: bytes, target: int, type_: str, **fields: object) -> None:
        # Not taken is as good as lost on the way: the sender asks again for all that is said here.
        self.port.send(
            route, messages.pack(self._instance, self._me.incarnation, target, type_, **fields)
        )


_COUNTERS = (
    "dropped_receiver",  # frames for an earlier life of ours
    "dropped_sender",  # frames of a life that is not, or no longer, our sender
    "dropped_instance",  # frames of another instance
    "duplicate",
    "resend",  # requests for missing frames
    "gap",  # frames lost for good
    "overflow",  # frames that came early and found no room
    "bad_frames",
    "refused",  # hellos
)
