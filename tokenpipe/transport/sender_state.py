"""Keep a receiver's knowledge of its sender: incarnation, route, alive or dead. No socket."""

from __future__ import annotations

from collections.abc import Callable

from . import timing
from .lane_messages import LaneMessage
from .peer import Role
from .peer_events import PeerDown, PeerEnded, PeerEvent, PeerUp


class SenderState:
    """Follow one sender through its incarnations. `events` keeps what happened until it is read."""

    __slots__ = (
        "_alive",
        "_expects",
        "_who_due",
        "dead_at",
        "ended",
        "events",
        "incarnation",
        "probe_due",
        "route",
        "since_ns",
    )

    def __init__(self, expects: Role, alive: Callable[[], bool]) -> None:
        self.incarnation = 0  # 0 if there is no sender
        self.route = b""
        self.since_ns = 0  # when the last welcomed sender was made
        self.ended = (0, 0)  # (incarnation, frames applied) of the last that ended
        self.events: list[PeerEvent] = []
        self.probe_due = timing.NEVER
        self.dead_at = timing.NEVER  # when a sender that was found dead is reported as down
        self._expects = expects
        self._alive = alive
        self._who_due = 0.0

    def enter(self, route: bytes, hello: LaneMessage, now: float) -> None:
        """Take a new incarnation. It replaces the one before."""
        if self.incarnation:
            self._leave(PeerDown(self.incarnation, f"{self._expects} was restarted"))
        self.incarnation = hello.source
        self.route = route
        # A time that has not come yet would refuse each successor.
        self.since_ns = min(hello.fields["since_ns"], int(now * 1e9))
        self.probe_due = now  # the first look opens the lock's file, which may be removed later
        self.events.append(PeerUp(hello.source))

    def resume(self, incarnation: int, since_ns: int, route: bytes, now: float) -> None:
        """Know a sender already. It is no event."""
        self.incarnation = incarnation
        self.since_ns = since_ns
        self.route = route
        if incarnation:
            self.probe_due = timing.on_grid(now, timing.PROBE_S)

    def end(self, applied: int) -> None:
        """Note that the sender ended the lane."""
        self.ended = (self.incarnation, applied)
        self._leave(PeerEnded(self.incarnation))

    def die(self) -> None:
        """Report the sender as dead."""
        self._leave(PeerDown(self.incarnation, f"{self._expects} is dead"))

    def probe(self, now: float) -> None:
        """Check whether the sender lives. Wait a moment for the last frames of a dead one."""
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        if self.dead_at == timing.NEVER and not self._alive():
            self.dead_at = now + timing.DEATH_GRACE_S

    def may_ask_who(self, now: float) -> bool:
        """Return whether to ask an unknown sender for a hello: at most once in 50 ms."""
        if now < self._who_due:
            return False
        self._who_due = now + timing.WHO_S
        return True

    def _leave(self, event: PeerEvent) -> None:
        self.events.append(event)
        self.incarnation = 0
        self.probe_due = self.dead_at = timing.NEVER
