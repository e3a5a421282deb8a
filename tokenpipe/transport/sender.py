"""The sending end of a lane, as its owner sees it: what may be sent, and what stands against it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from tokenpipe._core import FRAME_OVERHEAD, SEND_REFUSED, SENT_FIRST, SENT_LOOK, SendWindow, peek
from tokenpipe.errors import FrameTooLarge, LaneClosed, LaneError, LaneFull, LaneLost, StartupError
from tokenpipe.instance import ForkGuard

from . import timing
from .peer import Peer, Role
from .port import SenderPort
from .receiver_state import ReceiverState
from .sender_protocol import SenderProtocol
from .waiter import wait_readable


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
        max_frame_bytes: int = (1 << 32) - 1,
    ) -> None:
        now = clock()
        self.port = port
        self.me = me
        self._instance = instance
        self._peer = ReceiverState(Role(to.role, to.rank), receiver_incarnation, alive, now)
        self.window = self._window = SendWindow(
            bound_bytes, instance, me.incarnation, port.send, max_frame_bytes
        )
        self._max_frame_bytes = max_frame_bytes
        self._protocol = SenderProtocol(
            port, self._peer, self._window, instance=instance, me=me, now=now
        )
        self._clock = clock
        self._guard = ForkGuard()
        self._closed = False
        self.tick(now)

    # --- state --------------------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        """The number the next frame must carry."""
        return self._window.next_seq

    @property
    def next_header(self) -> tuple[int, int, int, int]:
        """What the next frame must begin with: instance, sender, receiver, number."""
        return (
            self._instance,
            self.me.incarnation,
            self._peer.receiver,
            self._window.next_seq,
        )

    @property
    def receiver(self) -> int:
        """The receiver's incarnation the next frame must carry, 0 before the first welcome."""
        return self._peer.receiver

    @property
    def ready(self) -> bool:
        """Whether the receiver welcomed us."""
        return self._peer.ready

    @property
    def lost(self) -> bool:
        """Whether the receiver is gone (`lost_reason` says how); a later life may welcome us."""
        return self._peer.lost

    @property
    def lost_reason(self) -> str:
        """Why `lost` is true."""
        return self._peer.reason

    @property
    def ending(self) -> bool:
        """Whether `end` or `close` was called: nothing more may be sent."""
        return self._closed or self._protocol.ending

    @property
    def ended(self) -> bool:
        """Whether the receiver, after `end`, said that everything is applied."""
        return self._protocol.ended

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

    @property
    def counters(self) -> dict[str, int]:
        """What happened on this lane so far: dropped_receiver, resent, bad_frames."""
        return dict(self._protocol.counters)

    # --- sending ------------------------------------------------------------------------------

    def send(self, frame: bytes, timeout_s: float = 0.0) -> None:
        """Send a frame that carries `next_header`.

        Raises FrameTooLarge, LaneFull (after at most `timeout_s`), LaneLost, LaneClosed, ForkError;
        nothing was numbered then.
        """
        if sent := self._window.send(frame):
            self._sent(sent, frame, timeout_s)

    def look(self, sent: int) -> None:
        """Do what a frame asks for that `window` has taken: SENT_FIRST or SENT_LOOK."""
        self._sent(sent, b"", 0.0)

    def _sent(self, sent: int, frame: bytes, timeout_s: float) -> None:
        if sent == SENT_FIRST:  # the first to wait for: see that it arrives
            protocol = self._protocol
            protocol.ping_due = min(protocol.ping_due, self._clock() + timing.TAIL_PING_S)
        elif sent == SENT_LOOK:
            self.poll()
        elif sent == SEND_REFUSED:
            raise LaneFull(f"lane {self.port.lane}: the socket takes nothing more")
        else:
            self._send_late(frame, timeout_s)

    def _send_late(self, frame: bytes, timeout_s: float) -> None:
        self._guard.check("LaneSender")
        window, receiver_state = self._window, self._peer
        if not window.receiver:
            self._refuse()
        _, _, _, receiver, seq = peek(frame)
        if seq != window.next_seq or receiver != receiver_state.receiver:
            self._misaddressed(receiver, seq)
        self._wait_for_room(len(frame) + FRAME_OVERHEAD, receiver, timeout_s)
        if sent := window.send(frame):
            self._sent(sent, frame, 0.0)

    def poll(self) -> None:
        """Hear the receiver and do what is due; never blocks."""
        self._guard.check("LaneSender")
        if self._closed:
            return
        now = self._clock()
        self._protocol.listen(now)
        self.tick(now)

    @property
    def next_deadline(self) -> float:
        """When `tick` has something to do."""
        return self._protocol.next_deadline

    def tick(self, now: float) -> None:
        """Do what is due by `now`: hello, ping, a look at the receiver's lock."""
        if not self._closed:
            self._protocol.tick(now)
            self._admit()

    def _admit(self) -> None:
        """Have the window take frames for the receiver there is, or none."""
        receiver_state = self._peer
        shut = self._closed or self._protocol.ending or receiver_state.lost
        self._window.receiver = 0 if shut else receiver_state.receiver

    def doubt(self) -> None:
        """Hear what the receiver has said so far, then be `ready` only after a new welcome.

        For an owner who knows that the receiver may have been replaced: a frame sent before the
        lane itself notices would be numbered for the dead one.
        """
        self.poll()
        if not self._closed and self._peer.receiver:
            now = self._clock()
            self._peer.unknown(self._peer.receiver, now)
            self._protocol.tick(now)

    # --- waiting ------------------------------------------------------------------------------

    def wait_ready(self, timeout_s: float) -> None:
        """Say hello until welcomed. Raises StartupError, LaneLost or LaneError saying why not."""
        lane = self.port.lane
        deadline = self._clock() + timeout_s
        while True:
            self.poll()
            if self._peer.ready:
                return
            if self._peer.refused:
                raise LaneError(f"lane {lane}: {self._peer.reason}")
            if self._closed or (self._peer.lost and self._peer.pinned):
                self._refuse()
            if not self._wait(deadline):
                missing = self._peer.missing()
                raise StartupError(f"lane {lane}: no welcome within {timeout_s:g} s; {missing}")

    def end(self) -> None:
        """Say that no frame follows; `ended` becomes true when everything is applied."""
        self._guard.check("LaneSender")
        if not self._protocol.ending and not self._closed:
            self._protocol.ending = True
            self._protocol.ping_due = self._clock()
            self.poll()

    def close(self, timeout_s: float) -> int:
        """End, wait for the receiver's word, and return how many frames lack it."""
        self._guard.check("LaneSender")
        if self._closed:
            return len(self._window)
        self.end()
        deadline = self._clock() + timeout_s
        while self._peer.receiver and not (self._protocol.ended or self._peer.lost):
            if not self._wait(deadline):
                break
            self.poll()
        self._closed = True
        self._admit()
        self.port.close()
        return len(self._window)

    def _wait(self, deadline: float) -> bool:
        """Wait for the receiver or the next own deadline; false when `deadline` is over."""
        now = self._clock()
        if now >= deadline:
            return False
        wait_readable(self.port, min(deadline, self.next_deadline) - now)
        return True

    def _wait_for_room(self, size: int, receiver: int, timeout_s: float) -> None:
        lane, window = self.port.lane, self._window
        if size > min(window.bound, self._max_frame_bytes + FRAME_OVERHEAD):
            raise FrameTooLarge(
                f"lane {lane}: a frame of {size - FRAME_OVERHEAD} bytes can never fit into the "
                f"bound of {min(window.bound, self._max_frame_bytes)}"
            )
        deadline = self._clock() + timeout_s
        while True:
            self.poll()
            if self._peer.lost or self._peer.receiver != receiver:
                self._refuse()
            if size <= window.bound - window.used:
                return
            if not self._wait(deadline):
                raise LaneFull(
                    f"lane {lane}: {len(window)} frames, {window.used} bytes are not acknowledged "
                    f"(bound {window.bound}, waited {timeout_s:g} s)"
                )

    # --- refusing -----------------------------------------------------------------------------

    def _misaddressed(self, receiver: int, seq: int) -> NoReturn:
        if seq != self._window.next_seq:
            raise ValueError(f"frame carries seq {seq}, the lane is at {self._window.next_seq}")
        raise LaneLost(
            f"lane {self.port.lane}: the frame is for receiver {receiver:x}, which is gone"
        )

    def _refuse(self) -> NoReturn:
        lane = self.port.lane
        if self._closed or self._protocol.ending:
            raise LaneClosed(f"lane {lane} is closed")
        raise LaneLost(f"lane {lane}: {self._peer.reason or 'its receiver changed or is unknown'}")
