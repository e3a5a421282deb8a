"""What a receiver knows of its sender: which life of it, how to answer, alive or not. No socket."""

from __future__ import annotations

from collections.abc import Callable

from . import timing
from .lane_messages import LaneMessage
from .peer import Role
from .peer_events import PeerDown, PeerEnded, PeerEvent, PeerUp


class SenderState:
    """Follow one sender through its lives and keep what became of each until it is asked for."""

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
        self.incarnation = 0  # 0 where there is none
        self.route = b""
        self.since_ns = 0  # when the last one welcomed began to exist
        self.ended = (0, 0)  # the last that ended: incarnation, frames applied; it may ask again
        self.events: list[PeerEvent] = []
        self.probe_due = timing.NEVER
        self.dead_at = timing.NEVER  # when one found dead is called down
        self._expects = expects
        self._alive = alive
        self._who_due = 0.0

    def enter(self, route: bytes, hello: LaneMessage, now: float) -> None:
        """Let a new life in; the one before it is replaced."""
        if self.incarnation:
            self._leave(PeerDown(self.incarnation, f"{self._expects} was restarted"))
        self.incarnation = hello.source
        self.route = route
        self.since_ns = hello.fields["since_ns"]
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        self.events.append(PeerUp(hello.source))

    def end(self, applied: int) -> None:
        """Let it go in peace."""
        self.ended = (self.incarnation, applied)
        self._leave(PeerEnded(self.incarnation))

    def die(self) -> None:
        """Call it dead."""
        self._leave(PeerDown(self.incarnation, f"{self._expects} is dead"))

    def probe(self, now: float) -> None:
        """Look whether it lives; if not, a moment is left for its last words."""
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        if self.dead_at == timing.NEVER and not self._alive():
            self.dead_at = now + timing.DEATH_GRACE_S

    def may_ask_who(self, now: float) -> bool:
        """Tell whether a stranger is to be asked for its hello; not more often than every 50 ms."""
        if now < self._who_due:
            return False
        self._who_due = now + timing.WHO_S
        return True

    def _leave(self, change: PeerEvent) -> None:
        self.events.append(change)
        self.incarnation = 0
        self.probe_due = self.dead_at = timing.NEVER
