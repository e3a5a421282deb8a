"""The sending end of a lane: number, keep, send, hear what was applied, send again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from tokenpipe._core import peek
from tokenpipe.errors import (
    FrameError,
    FrameTooLarge,
    LaneClosed,
    LaneError,
    LaneFull,
    LaneLost,
    StartupError,
)

from . import messages, timing
from .guard import ForkGuard
from .link import Link
from .messages import LaneMessage
from .peer import Peer, Role
from .port import SenderPort
from .waiter import wait_readable
from .window import FRAME_OVERHEAD, SendWindow

_LOOK_EVERY = 32  # sends between two looks for acknowledgements


class LaneSender:
    """Send frames to one receiver, each of its lives in turn.

    With `receiver_incarnation` the lane is pinned to that life: it may send before the welcome, and
    is lost for good when another life answers. One thread at a time.
    """

    def __init__(
        self,
        port: SenderPort,
        *,
        instance: int,
        me: Peer,
        to: Role | Peer,
        bound_bytes: int,
        alive: Callable[[], bool],
        clock: timing.Clock = time.monotonic,
        receiver_incarnation: int = 0,
    ) -> None:
        now = clock()
        self.port = port
        self.ended = False  # the receiver said that everything is applied
        self.counters = {"dropped_receiver": 0, "resent": 0, "bad_frames": 0}
        self._instance = instance
        self._me = me
        self._link = Link(Role(to.role, to.rank), receiver_incarnation, alive, now)
        self._window = SendWindow(bound_bytes)
        self._clock = clock
        self._guard = ForkGuard()
        self._since_ns = int(now * 1e9)
        self._until_look = _LOOK_EVERY
        self._ending = False
        self._closed = False
        self._ping_due = timing.NEVER
        self._pinged_at = 0  # the oldest frame kept when the ping timer was last looked at
        self.tick(now)

    # --- state --------------------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        """The number the next frame must carry."""
        return self._window.next_seq

    @property
    def receiver(self) -> int:
        """The receiver's incarnation the next frame must carry, 0 before the first welcome."""
        return self._link.receiver

    @property
    def ready(self) -> bool:
        """Whether the receiver welcomed us."""
        return self._link.ready

    @property
    def lost(self) -> bool:
        """Whether the receiver is gone (`lost_reason` says how)."""
        return self._link.lost

    @property
    def lost_reason(self) -> str:
        """Why `lost` is true."""
        return self._link.reason

    @property
    def unacked_frames(self) -> int:
        """Frames kept because they are not known to be applied."""
        return len(self._window)

    @property
    def unacked_bytes(self) -> int:
        """Bytes kept for them, an overhead of 64 a frame included."""
        return self._window.used

    @property
    def room(self) -> int:
        """The size of the largest frame that would be taken now."""
        return max(self._window.bound - self._window.used - FRAME_OVERHEAD, 0)

    # --- sending ------------------------------------------------------------------------------

    def send(self, frame: bytes, timeout_s: float = 0.0) -> None:
        """Send a frame that carries `next_seq` and `receiver`.

        Raises FrameTooLarge, LaneFull (after at most `timeout_s`), LaneLost, LaneClosed, ForkError;
        nothing was numbered then.
        """
        self._guard.check("LaneSender")
        window = self._window
        link = self._link
        if self._closed or self._ending or link.lost or not link.receiver:
            self._refuse()
        _, _, _, receiver, seq = peek(frame)
        if seq != window.next_seq or receiver != link.receiver:
            self._misaddressed(receiver, seq)
        size = len(frame) + FRAME_OVERHEAD
        if size > window.bound - window.used:
            self._wait_for_room(size, receiver, timeout_s)
        if not self.port.send(frame):
            raise LaneFull(f"lane {self.port.lane}: the socket takes nothing more")
        if window.first == window.next_seq:
            self._ping_due = min(self._ping_due, self._clock() + timing.TAIL_PING_S)
        window.push(frame)
        self._until_look -= 1
        if self._until_look <= 0:
            self.poll()

    def poll(self) -> None:
        """Hear the receiver and do what is due; never blocks."""
        self._guard.check("LaneSender")
        if self._closed:
            return
        self._until_look = _LOOK_EVERY
        now = self._clock()
        while (frame := self.port.recv()) is not None:
            self._hear(frame, now)
        self.tick(now)

    def wait_ready(self, timeout_s: float) -> None:
        """Say hello until welcomed. Raises StartupError, LaneLost or LaneError saying why not."""
        lane = self.port.lane
        deadline = self._clock() + timeout_s
        while True:
            self.poll()
            if self._link.ready:
                return
            if self._link.refused:
                raise LaneError(f"lane {lane}: {self._link.reason}")
            if self._closed or (self._link.lost and self._link.pinned):
                self._refuse()
            if not self._wait(deadline):
                raise StartupError(
                    f"lane {lane}: no welcome within {timeout_s:g} s; {self._link.missing()}"
                )

    # --- ending -------------------------------------------------------------------------------

    def end(self) -> None:
        """Say that no frame follows; `ended` becomes true when everything is applied."""
        self._guard.check("LaneSender")
        if not self._ending and not self._closed:
            self._ending = True
            self._ping_due = self._clock()
            self.poll()

    def close(self, timeout_s: float) -> int:
        """End, wait for the receiver's word, and return how many frames lack it."""
        self._guard.check("LaneSender")
        if self._closed:
            return len(self._window)
        self.end()
        deadline = self._clock() + timeout_s
        while self._link.receiver and not (self.ended or self._link.lost):
            if not self._wait(deadline):
                break
            self.poll()
        self._closed = True
        self.port.close()
        return len(self._window)

    # --- deadlines ----------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._link.hello_due, self._link.probe_due, self._ping_due)

    def tick(self, now: float) -> None:
        """Do what is due by `now`: hello, ping, a look at the receiver's lock."""
        if self._closed:
            return
        if now >= self._link.probe_due:
            self._link.probe(now)
        if now >= self._link.hello_due and self._link.hello(now):
            self._say(
                "hello",
                role=self._me.role,
                rank=self._me.rank,
                since_ns=self._since_ns,
                pinned=self._link.pinned,
                **self._position(),
            )
        if now >= self._ping_due:
            self._ping(now)

    def _ping(self, now: float) -> None:
        window = self._window
        if self._link.lost or not self._link.receiver:
            self._ping_due = timing.NEVER  # a welcome starts it again
            return
        busy = window.first != window.next_seq
        if self._ending:
            if not self.ended:
                self._say("end", **self._position())
        elif not busy or window.first == self._pinged_at:
            self._say("ping", **self._position())
        self._pinged_at = window.first
        self._ping_due = now + (timing.TAIL_PING_S if busy or self._ending else timing.PING_S)

    def _position(self) -> dict[str, int]:
        return {"next_seq": self._window.next_seq, "first_retained": self._window.first}

    def _say(self, type_: str, **fields: object) -> None:
        # Not taken is as good as lost on the way: everything said here is said again when due.
        self.port.send(
            messages.pack(
                self._instance, self._me.incarnation, self._link.receiver, type_, **fields
            )
        )

    # --- hearing ------------------------------------------------------------------------------

    def _hear(self, frame: bytes, now: float) -> None:
        try:
            message = messages.unpack(frame)
        except FrameError:
            self.counters["bad_frames"] += 1
            version = messages.foreign_version(frame)
            if version is not None:
                self._link.refuse(f"version: it speaks {version}, we speak {messages.VERSION}", now)
            return
        if message.target not in (0, self._me.incarnation):
            return  # for an earlier life of ours
        if message.instance != self._instance and message.type != "refuse":
            return
        link = self._link
        if message.type == "welcome":
            self._welcomed(message, now)
        elif message.type == "who":
            link.unknown(message.source, now)
        elif message.type == "refuse":
            link.refuse(f"{message.fields['code']}: {message.fields['detail']}", now)
        elif message.source == link.receiver:
            self._hear_receiver(message, now)

    def _hear_receiver(self, message: LaneMessage, now: float) -> None:
        fields = message.fields
        if message.type == "ack":
            self._window.ack(fields["applied"])
        elif message.type == "resend":
            self._resend(fields["first"], fields["last"])
        elif message.type == "ended":
            self._window.ack(fields["applied"])
            self.ended = self._ending
        elif message.type == "bye":
            self._window.ack(fields["applied"])
            self._link.lose("closed by its receiver", now)

    def _welcomed(self, message: LaneMessage, now: float) -> None:
        before = self._link.receiver
        was_ready = self._link.ready
        new = self._link.welcome(
            message.source, message.fields["role"], message.fields["rank"], now
        )
        if not self._link.ready:
            return
        if new and before:
            # What was numbered for a dead receiver is of no use to its successor.
            self.counters["dropped_receiver"] += self._window.forget()
            self._say("ping", **self._position())
        else:
            self._window.ack(message.fields["applied"])
            if not was_ready:
                self._resend(message.fields["expects"], self._window.next_seq - 1)
        self._ping_due = now + (timing.TAIL_PING_S if len(self._window) else timing.PING_S)
        if self._ending:
            self._ping_due = now

    def _resend(self, first: int, last: int) -> None:
        if first < self._window.first:
            self._say("ping", **self._position())  # says from where on we still have them
        for frame in self._window.between(first, last):
            if not self.port.send(frame):
                return
            self.counters["resent"] += 1

    # --- waiting and refusing -----------------------------------------------------------------

    def _wait(self, deadline: float) -> bool:
        """Wait for the receiver or the next own deadline; false when `deadline` is over."""
        now = self._clock()
        if now >= deadline:
            return False
        wait_readable(self.port, min(deadline, self.next_deadline) - now)
        return True

    def _wait_for_room(self, size: int, receiver: int, timeout_s: float) -> None:
        window = self._window
        if size > window.bound:
            raise FrameTooLarge(
                f"lane {self.port.lane}: a frame of {size - FRAME_OVERHEAD} bytes can never fit "
                f"into the bound of {window.bound}"
            )
        deadline = self._clock() + timeout_s
        while True:
            self.poll()
            if self._link.lost or self._link.receiver != receiver:
                self._refuse()
            if size <= window.bound - window.used:
                return
            if not self._wait(deadline):
                raise LaneFull(
                    f"lane {self.port.lane}: {len(window)} frames, {window.used} bytes are not "
                    f"acknowledged (bound {window.bound}, waited {timeout_s:g} s)"
                )

    def _misaddressed(self, receiver: int, seq: int) -> NoReturn:
        if seq != self._window.next_seq:
            raise ValueError(f"frame carries seq {seq}, the lane is at {self._window.next_seq}")
        raise LaneLost(
            f"lane {self.port.lane}: the frame is for receiver {receiver:x}, which is gone"
        )

    def _refuse(self) -> NoReturn:
        lane = self.port.lane
        if self._closed or self._ending:
            raise LaneClosed(f"lane {lane} is closed")
        raise LaneLost(f"lane {lane}: {self._link.reason or 'its receiver changed or is unknown'}")
