"""Run the sender's half of the lane protocol (docs/lanes.md). Never waits."""

from __future__ import annotations

from tokenpipe._core import SendWindow
from tokenpipe.errors import FrameError

from . import lane_messages as messages
from . import timing
from .lane_messages import LaneMessage
from .peer import Peer
from .port import SenderPort
from .receiver_state import ReceiverState


class SenderProtocol:
    """Keep frames until the receiver has applied them; answer the receiver's messages."""

    def __init__(
        self,
        port: SenderPort,
        receiver_state: ReceiverState,
        window: SendWindow,
        *,
        instance: int,
        me: Peer,
        now: float,
    ) -> None:
        self.ending = False
        self.ended = False  # the receiver has applied all frames
        self.counters = {"dropped_receiver": 0, "resent": 0, "bad_frames": 0}
        self.ping_due = timing.NEVER
        self._port = port
        self._peer = receiver_state
        self._window = window
        self._instance = instance
        self._me = me
        self._since_ns = int(now * 1e9)
        self._pinged_at = 0  # the oldest unacknowledged frame at the last check of the ping timer

    @property
    def next_deadline(self) -> float:
        """The time at which `tick` is due next."""
        return min(self._peer.hello_due, self._peer.probe_due, self.ping_due)

    def tick(self, now: float) -> None:
        """Do what is due by `now`: say hello, ping, check the receiver's lock."""
        receiver_state = self._peer
        if now >= receiver_state.probe_due:
            receiver_state.probe(now)
        if now >= receiver_state.hello_due and receiver_state.hello(now):
            self._say(
                "hello",
                role=self._me.role,
                rank=self._me.rank,
                since_ns=self._since_ns,
                pinned=receiver_state.pinned,
                **self._position(),
            )
        if now >= self.ping_due:
            self._ping(now)

    def listen(self, now: float) -> None:
        """Read all messages of the receiver."""
        taken = self._window.hear  # nearly all messages are acknowledgements
        while (frame := self._port.recv()) is not None:
            if not taken(frame):
                self._hear(frame, now)

    # --- speaking -----------------------------------------------------------------------------

    def _ping(self, now: float) -> None:
        window = self._window
        if self._peer.lost or not self._peer.receiver:
            self.ping_due = timing.NEVER  # the next welcome starts the timer again
            return
        busy = window.first != window.next_seq
        if self.ending:
            if not self.ended:
                self._say("end", **self._position())
        elif not busy or window.first == self._pinged_at:
            self._say("ping", **self._position())
        self._pinged_at = window.first
        if busy or self.ending:
            self.ping_due = now + timing.TAIL_PING_S
        else:
            self.ping_due = timing.on_grid(now, timing.PING_S)

    def _resend(self, first: int, last: int) -> None:
        if first < self._window.first:
            self._say("ping", **self._position())  # names the oldest frame that is kept
        for frame in self._window.between(first, last):
            if not self._port.send(frame):
                return
            self.counters["resent"] += 1

    def _position(self) -> dict[str, int]:
        return {"next_seq": self._window.next_seq, "first_retained": self._window.first}

    def _say(self, type_: str, **fields: object) -> None:
        # A message that the port does not take counts as lost: a timer sends each of them again.
        source, target = self._me.incarnation, self._peer.receiver
        self._port.send(messages.pack(self._instance, source, target, type_, **fields))

    # --- hearing ------------------------------------------------------------------------------

    def _hear(self, frame: bytes, now: float) -> None:
        try:
            message = messages.unpack(frame)
        except FrameError:
            self.counters["bad_frames"] += 1
            version = messages.foreign_version(frame)
            if version is not None:
                ours = messages.VERSION
                self._peer.refuse(f"version: it uses {version}, this sender uses {ours}", now)
            return
        if message.target not in (0, self._me.incarnation):
            return  # for an earlier incarnation of this sender
        if message.instance != self._instance and message.type != "refuse":
            return
        receiver_state = self._peer
        if message.type == "welcome":
            self._welcomed(message, now)
        elif message.type == "who":
            receiver_state.unknown(message.source, now)
        elif message.type == "refuse":
            receiver_state.refuse(f"{message.fields['code']}: {message.fields['detail']}", now)
        elif message.source == receiver_state.receiver:
            self._hear_receiver(message, now)

    def _hear_receiver(self, message: LaneMessage, now: float) -> None:
        fields = message.fields
        if message.type == "ack":
            self._window.ack(fields["applied"])
        elif message.type == "resend":
            self._resend(fields["first"], fields["last"])
        elif message.type == "ended":
            self._window.ack(fields["applied"])
            self.ended = self.ending
        elif message.type == "bye":
            self._window.ack(fields["applied"])
            self._peer.lose("its receiver closed it", now)

    def _welcomed(self, message: LaneMessage, now: float) -> None:
        receiver_state = self._peer
        fields = message.fields
        before, was_ready = receiver_state.receiver, receiver_state.ready
        new = receiver_state.welcome(message.source, fields["role"], fields["rank"], now)
        if not receiver_state.ready:
            return
        if new and before:
            # Frames that were numbered for a dead receiver are of no use to its successor.
            self.counters["dropped_receiver"] += self._window.forget()
            self._say("ping", **self._position())
        else:
            self._window.ack(fields["applied"])
            if not was_ready:
                self._resend(fields["expects"], self._window.next_seq - 1)
        if self.ending:
            self.ping_due = now
        else:
            if len(self._window):
                self.ping_due = now + timing.TAIL_PING_S
            else:
                self.ping_due = timing.on_grid(now, timing.PING_S)
