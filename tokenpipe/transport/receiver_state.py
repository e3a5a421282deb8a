"""Keep a sender's knowledge of its receiver: incarnation, welcomed or not, alive or dead.

Pure: `now` is a parameter, and `alive` is called when a check is due.
"""

from __future__ import annotations

from collections.abc import Callable

from . import timing
from .peer import Role


class ReceiverState:
    """Follow one receiver through its incarnations.

    `ready`: this incarnation welcomed the sender. `lost`: it is dead, closed the lane, or refuses
    the sender. A later incarnation may welcome the sender again, unless the lane is pinned to this
    one or `refused` names a reason that does not go away.
    """

    __slots__ = (
        "_alive",
        "_hello_gap",
        "_pinned",
        "_to",
        "_unconditional",
        "hello_due",
        "lost",
        "probe_due",
        "ready",
        "reason",
        "receiver",
        "refused",
    )

    def __init__(self, to: Role, receiver: int, alive: Callable[[], bool], now: float) -> None:
        self.receiver = receiver
        self.ready = False
        self.lost = False
        self.reason = ""
        self.refused = ""
        self.hello_due = now
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        self._to = to
        self._pinned = receiver != 0
        self._alive = alive
        self._hello_gap = timing.HELLO_FIRST_S
        self._unconditional = True

    @property
    def pinned(self) -> bool:
        """Whether the lane is for one incarnation of the receiver only."""
        return self._pinned

    def hello(self, now: float) -> bool:
        """Return whether to say hello now, and set the time of the next hello.

        The first hello waits in the socket for a receiver that comes later. Further ones are sent
        only while a process holds the role, so that they do not pile up.
        """
        self.hello_due = now + self._hello_gap
        self._hello_gap = min(self._hello_gap * 2, timing.HELLO_MAX_S)
        if self._unconditional:
            self._unconditional = False
            return True
        return self._alive()

    def probe(self, now: float) -> None:
        """Check whether the receiver lives."""
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        if self.receiver and not self.lost and not self._alive():
            self.lose(f"{self._to} is dead", now)

    def lose(self, reason: str, now: float) -> None:
        """Note that the receiver is gone, with the reason."""
        self.ready = False
        self.lost = True
        self.reason = reason
        if self._pinned or self.refused:
            self.hello_due = timing.NEVER
        else:
            self._ask_again(now)

    def refuse(self, reason: str, now: float) -> None:
        """Note that the receiver refuses this sender. The sender does not ask again."""
        self.refused = reason
        self.lose(f"refused by {self._to}: {reason}", now)

    def unknown(self, source: int, now: float) -> None:
        """Note that the receiver's incarnation `source` does not know this sender."""
        if self.refused or (self.lost and self._pinned):
            return
        if self.receiver not in (0, source):
            self.lose(f"{self._to} was restarted", now)
        else:
            self.ready = False
            self._ask_again(now)

    def welcome(self, source: int, role: str, rank: str, now: float) -> bool:
        """Note a welcome. Return whether it is the first from a new incarnation, now `receiver`."""
        if (role, rank) != self._to:
            self.refuse(f"role: this lane leads to {role} {rank}", now)
            return False
        new = source != self.receiver
        if new and self._pinned:
            self.lose(f"{self._to} was restarted", now)
            return False
        self.receiver = source
        self.ready = True
        self.lost = False
        self.reason = ""
        self.hello_due = timing.NEVER
        if new:
            self.probe_due = now  # the first look opens the lock's file, which may be removed later
        return new

    def missing(self) -> str:
        """Return the reason why there is no welcome yet."""
        if self._alive():
            return f"{self._to} runs but does not answer"
        return f"{self._to} is not running"

    def _ask_again(self, now: float) -> None:
        self.hello_due = now
        self._hello_gap = timing.HELLO_FIRST_S
        self._unconditional = True
