"""Run the receiver's half of the lane protocol (docs/lanes.md). Never waits."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.errors import FrameError

from . import lane_messages as messages
from . import timing
from .admission import refusal
from .lane_messages import LaneMessage
from .peer import Peer, Role
from .port import ReceiverPort
from .retransmit import Retransmission
from .sender_state import SenderState
from .window import Gap, ReceiveWindow

_COUNTERS = (
    "dropped_receiver",  # frames for an earlier incarnation of this receiver
    "dropped_sender",  # frames of a process that was never the sender, or no longer is
    "dropped_instance",  # frames of another instance
    "duplicate",
    "resend",  # requests to send missing frames again
    "gap",  # frames that are lost
    "overflow",  # frames that came early, found no room and were dropped
    "bad_frames",
    "refused",  # hellos that were refused
    "shut",  # connections that were closed because of a message without an end
)


class ReceiverProtocol:
    """Put one sender's frames in order and answer its messages."""

    def __init__(
        self,
        port: ReceiverPort,
        *,
        instance: int,
        me: Peer,
        expects: Role,
        alive: Callable[[], bool],
        hold_bytes: int,
        gap_timeout_s: float,
    ) -> None:
        self.sender_state = SenderState(expects, alive)
        self.window = ReceiveWindow(1, hold_bytes)
        self.ready: list[bytes | Gap] = []  # Gaps and frames that the next recv returns
        self.returned = 0  # the last frame recv returned
        self.unacked = 0  # applied frames since the last acknowledgement
        self.heard = 0  # pings and ends that came: signs of life without a frame
        self.ack_due = timing.NEVER
        self._tend_due = 0.0
        self._port = port
        self._instance = instance
        self._me = me
        self._expects = expects
        self._hold_bytes = hold_bytes
        self._retransmission = Retransmission(gap_timeout_s)
        self._end_seq = 0  # one more than the sender's last frame; 0 while it is not known
        self._counts = dict.fromkeys(_COUNTERS, 0)

    def resume(self, sender: int, since_ns: int, expected: int, route: bytes, now: float) -> None:
        """Go on if a receiver with this incarnation was."""
        self.sender_state.resume(sender, since_ns, route, now)
        self.window = ReceiveWindow(expected, self._hold_bytes, started=sender != 0)
        self.returned = expected - 1

    # --- what is due ----------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """The time at which `tick` is due next."""
        sender_state, healing = self.sender_state, self._retransmission
        return min(
            self.ack_due,
            sender_state.probe_due,
            sender_state.dead_at,
            healing.ask_due,
            healing.give_up_due,
            self._tend_due,
        )

    def tick(self, now: float) -> None:
        """Do what is due by `now`."""
        sender_state = self.sender_state
        if now >= self.ack_due:
            self.ack()
        if now >= min(self._retransmission.ask_due, self._retransmission.give_up_due):
            self.heal(now)
        if now >= sender_state.probe_due:
            sender_state.probe(now)
        if now >= self._tend_due:
            self._tend_due = self._port.tend(now)
        if now >= sender_state.dead_at:
            if self._port.readable():  # read its last frames first
                sender_state.dead_at = now + timing.DEATH_GRACE_S
            else:
                sender_state.die()
                self._renew(1)

    def heal(self, now: float) -> None:
        """Ask for the first missing range, or call it lost when its time is over."""
        window = self.window
        hole = window.missing()
        if hole is not None and now >= self._retransmission.give_up_due:
            window.give_up(hole[1], self.ready)
            hole = window.missing()
        if self._retransmission.look(hole, now) and hole is not None:
            self._counts["resend"] += 1
            self._answer("resend", first=hole[0], last=hole[1])

    # --- what is applied ------------------------------------------------------------------------

    def apply(self) -> None:
        """Note that all returned frames are applied. If this ends the lane, tell the sender."""
        self.unacked += self.window.apply(self.returned)
        if self._end_seq:
            self._finish()

    def ack(self) -> None:
        """Send an acknowledgement."""
        self.unacked = 0
        self.ack_due = timing.NEVER
        if self.sender_state.incarnation:
            self._answer("ack", applied=self.window.applied)

    def bye(self) -> None:
        """Tell the sender that this receiver closes."""
        if self.sender_state.incarnation:
            self._answer("bye", applied=self.window.applied)

    def _finish(self) -> None:
        applied = self.window.applied
        if applied + 1 >= self._end_seq:
            self._answer("ended", applied=applied)
            self.sender_state.end(applied)
            self._renew(1)

    def _renew(self, first: int) -> None:
        self._count_window(self._counts)
        self.window = ReceiveWindow(first, self._hold_bytes)
        self.returned = first - 1
        self.unacked = self._end_seq = 0
        self.ack_due = timing.NEVER
        self._retransmission.look(None, 0.0)

    # --- hearing --------------------------------------------------------------------------------

    def hear(self, route: bytes, frame: bytes, out: list[bytes | Gap], now: float) -> None:
        """Handle a lane message."""
        try:
            message = messages.unpack(frame)
        except FrameError:
            self.bad(route, frame)
            return
        sender_state = self.sender_state
        if message.type == "hello":
            self._hello(route, message, out, now)
        elif message.instance != self._instance:
            self._counts["dropped_instance"] += 1
        elif message.type not in ("ping", "end"):
            return  # a message of a later version, or one that is not for a receiver
        elif message.source == sender_state.ended[0]:
            self._say(route, message.source, "ended", applied=sender_state.ended[1])
        elif message.source != sender_state.incarnation or message.target != self._me.incarnation:
            self._who(route, message.source, now)
        else:
            self._announced(message, out)

    def _announced(self, message: LaneMessage, out: list[bytes | Gap]) -> None:
        self.heard += 1
        fields = message.fields
        self.window.announce(fields["next_seq"], fields["first_retained"], out)
        if message.type == "end":
            self._end_seq = fields["next_seq"]
            self._finish()
        elif fields["first_retained"] < fields["next_seq"]:  # it waits for an acknowledgement
            self.ack()

    def _hello(self, route: bytes, hello: LaneMessage, out: list[bytes | Gap], now: float) -> None:
        fields, me, sender_state = hello.fields, self._me, self.sender_state
        reason = refusal(
            hello,
            instance=self._instance,
            me=me,
            expects=self._expects,
            since_ns=sender_state.since_ns,
        )
        if reason is not None:
            self._counts["refused"] += 1
            self._say(route, hello.source, "refuse", code=reason[0], detail=reason[1])
            return
        known_to_it = hello.target == me.incarnation
        if hello.source != sender_state.incarnation:
            sender_state.enter(route, hello, now)
            self._renew(fields["first_retained" if known_to_it else "next_seq"])
        elif known_to_it:
            sender_state.route = route  # another one, if this receiver's process is new
            self.window.announce(fields["next_seq"], fields["first_retained"], out)
        applied, expects = self.window.applied, self.window.expected
        self._answer("welcome", role=me.role, rank=me.rank, applied=applied, expects=expects)

    def drop(self, route: bytes, instance: int, sender: int, receiver: int, now: float) -> None:
        """Count a frame with a wrong header. Ask an unknown sender for its hello."""
        if instance != self._instance:
            self._counts["dropped_instance"] += 1
            return
        wrong = "dropped_receiver" if receiver != self._me.incarnation else "dropped_sender"
        self._counts[wrong] += 1
        if sender != self.sender_state.incarnation:
            self._who(route, sender, now)

    def bad(self, route: bytes, frame: bytes) -> None:
        """Count bytes that are not a frame.

        If they are of another wire version, answer with the version of this receiver.
        """
        self._counts["bad_frames"] += 1
        version = messages.foreign_version(frame)
        if version is not None:
            detail = f"this receiver uses {messages.VERSION}, not {version}"
            self._say(route, 0, "refuse", code="version", detail=detail)

    # --- speaking -------------------------------------------------------------------------------

    def _who(self, route: bytes, source: int, now: float) -> None:
        if self.sender_state.may_ask_who(now):
            self._say(route, source, "who")

    def _answer(self, type_: str, **fields: object) -> None:
        self._say(self.sender_state.route, self.sender_state.incarnation, type_, **fields)

    def _say(self, route: bytes, target: int, type_: str, **fields: object) -> None:
        # A message that the port does not take counts as lost: the sender asks again.
        source = self._me.incarnation
        self._port.send(route, messages.pack(self._instance, source, target, type_, **fields))

    # --- counting -------------------------------------------------------------------------------

    def count(self) -> dict[str, int]:
        """Return the counts so far, by name."""
        counts = dict(self._counts)
        counts["bad_frames"] += self._port.malformed
        counts["shut"] = self._port.shut
        self._count_window(counts)
        return counts

    def _count_window(self, counts: dict[str, int]) -> None:
        counts["duplicate"] += self.window.duplicates
        counts["overflow"] += self.window.overflowed
        counts["gap"] += self.window.lost
