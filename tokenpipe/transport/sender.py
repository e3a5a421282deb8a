"""Send frames over a lane: the sending end, as its owner uses it."""

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
    """Send frames to one receiver, to each of its incarnations in turn.

    With `receiver_incarnation` the lane is pinned to that incarnation: it may send before the
    welcome, and it is lost when another incarnation answers. One thread at a time.
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
        now = self._unheard_since = clock()
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
        """The number that the next frame must carry."""
        return self._window.next_seq

    @property
    def next_header(self) -> tuple[int, int, int, int]:
        """The header that the next frame must begin with: instance, sender, receiver, number."""
        return (
            self._instance,
            self.me.incarnation,
            self._peer.receiver,
            self._window.next_seq,
        )

    @property
    def receiver(self) -> int:
        """The receiver's incarnation for the next frame, 0 before the first welcome."""
        return self._peer.receiver

    @property
    def ready(self) -> bool:
        """Whether the receiver has welcomed this sender."""
        return self._peer.ready

    def unheard(self, now: float) -> str:
        """Return what to say of a receiver that runs and does not welcome this sender; or "".

        It is said from `timing.UNHEARD_S` after the sender was made, or lost its welcome.
        """
        if self._peer.ready or self._peer.lost or self._closed:
            self._unheard_since = now
        if now - self._unheard_since < timing.UNHEARD_S:
            return ""
        return f"lane {self.port.lane}: {self._peer.missing()}"

    @property
    def lost(self) -> bool:
        """Whether the receiver is gone; see `lost_reason`. A later incarnation may welcome us."""
        return self._peer.lost

    @property
    def lost_reason(self) -> str:
        """The reason why `lost` is true."""
        return self._peer.reason

    @property
    def ending(self) -> bool:
        """Whether `end` or `close` was called. Then no frame may be sent."""
        return self._closed or self._protocol.ending

    @property
    def ended(self) -> bool:
        """Whether `end` was called and the receiver has applied all frames."""
        return self._protocol.ended

    @property
    def unacked_frames(self) -> int:
        """How many frames are not acknowledged; the lane keeps them."""
        return len(self._window)

    @property
    def unacked_bytes(self) -> int:
        """Bytes of the unacknowledged frames, with an overhead of 64 bytes for each."""
        return self._window.used

    @property
    def room(self) -> int:
        """The size in bytes of the largest frame that the lane can take now."""
        return max(self._window.bound - self._window.used - FRAME_OVERHEAD, 0)

    @property
    def counters(self) -> dict[str, int]:
        """Counts of this lane so far: dropped_receiver, resent, bad_frames."""
        return dict(self._protocol.counters)

    # --- sending ------------------------------------------------------------------------------

    def send(self, frame: bytes, timeout_s: float = 0.0) -> None:
        """Send a frame that carries `next_header`.

        Raises FrameTooLarge, LaneFull (after at most `timeout_s`), LaneLost, LaneClosed, ForkError.
        The frame is then neither numbered nor sent.
        """
        if sent := self._window.send(frame):
            self._sent(sent, frame, timeout_s)

    def look(self, sent: int) -> None:
        """Act on what `window` returned for a frame: SENT_FIRST or SENT_LOOK."""
        self._sent(sent, b"", 0.0)

    def _sent(self, sent: int, frame: bytes, timeout_s: float) -> None:
        if sent == SENT_FIRST:  # no other frame waits for an acknowledgement: start the timer
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
        """Read the receiver's messages and do what is due. Never blocks."""
        self._guard.check("LaneSender")
        if self._closed:
            return
        now = self._clock()
        self._protocol.listen(now)
        self.tick(now)

    @property
    def next_deadline(self) -> float:
        """The time at which `tick` is due next."""
        return self._protocol.next_deadline

    def tick(self, now: float) -> None:
        """Do what is due by `now`: say hello, ping, check the receiver's lock."""
        if not self._closed:
            self._protocol.tick(now)
            self._admit()

    def _admit(self) -> None:
        """Let the window take frames for the present receiver. Without a receiver it takes none."""
        receiver_state = self._peer
        shut = self._closed or self._protocol.ending or receiver_state.lost
        self._window.receiver = 0 if shut else receiver_state.receiver

    def doubt(self) -> None:
        """Read the receiver's messages; then be `ready` only after a new welcome.

        Call it when the receiver may have been replaced. Otherwise the lane could number a frame
        for a dead receiver before it notices the death.
        """
        self.poll()
        if not self._closed and self._peer.receiver:
            now = self._clock()
            self._peer.unknown(self._peer.receiver, now)
            self._protocol.tick(now)

    # --- waiting ------------------------------------------------------------------------------

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the welcome. Raises StartupError, LaneLost or LaneError with the reason."""
        deadline = self._clock() + timeout_s
        while not self.welcomed():
            if not self._wait(deadline):
                raise StartupError(self.no_welcome(timeout_s))

    def welcomed(self) -> bool:
        """Read the receiver's messages; return whether it has welcomed this sender.

        Raises LaneLost or LaneError with the reason if no welcome can come. Never blocks.
        """
        self.poll()
        if self._peer.ready:
            return True
        if self._peer.refused:
            raise LaneError(f"lane {self.port.lane}: {self._peer.reason}")
        if self._closed or (self._peer.lost and self._peer.pinned):
            self._refuse()
        return False

    def no_welcome(self, waited_s: float) -> str:
        """Return what is missing after a wait for the welcome."""
        missing = self._peer.missing()
        return f"lane {self.port.lane}: no welcome within {waited_s:g} s; {missing}"

    def wait(self, timeout_s: float) -> None:
        """Wait for a message of the receiver, at most `timeout_s`, and handle it."""
        self._guard.check("LaneSender")
        self._wait(self._clock() + timeout_s)
        self.poll()

    def end(self) -> None:
        """Tell the receiver that no frame follows. `ended` becomes true when all are applied."""
        self._guard.check("LaneSender")
        if not self._protocol.ending and not self._closed:
            self._protocol.ending = True
            self._protocol.ping_due = self._clock()
            self.poll()

    def close(self, timeout_s: float) -> int:
        """End the lane, wait for acknowledgements, and return how many frames lack one."""
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
        """Wait for a message or the next timer. Return False once `deadline` has passed."""
        now = self._clock()
        if now >= deadline:
            return False
        wait_readable(self.port, min(deadline, self.next_deadline) - now)
        return True

    def _wait_for_room(self, size: int, receiver: int, timeout_s: float) -> None:
        lane, window = self.port.lane, self._window
        if size > min(window.bound, self._max_frame_bytes + FRAME_OVERHEAD):
            raise FrameTooLarge(
                f"lane {lane}: a frame of {size - FRAME_OVERHEAD} bytes exceeds the "
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
            f"lane {self.port.lane}: the frame names receiver {receiver:x}, which is gone"
        )

    def _refuse(self) -> NoReturn:
        lane = self.port.lane
        if self._closed or self._protocol.ending:
            raise LaneClosed(f"lane {lane} is closed")
        raise LaneLost(f"lane {lane}: {self._peer.reason or 'its receiver changed or is unknown'}")
