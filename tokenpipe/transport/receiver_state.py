"""What a sender knows of its receiver: which life of it, welcomed or not, alive or not.

No socket inside and no clock: `now` comes in, `alive` is asked when due.
"""

from __future__ import annotations

from collections.abc import Callable

from . import timing
from .peer import Role


class ReceiverState:
    """Follow one receiver through its lives.

    `ready`: this life welcomed us. `lost`: it is dead, gone or refuses us; a later life may welcome
    us again, unless the lane is pinned to this one or `refused` says why it never will.
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
        """Whether only one life of the receiver will do."""
        return self._pinned

    def hello(self, now: float) -> bool:
        """Tell whether to say hello now, and set the time of the next.

        The first waits in the socket for a receiver that is not there yet. Later ones are said only
        while somebody holds the role, so that they do not pile up.
        """
        self.hello_due = now + self._hello_gap
        self._hello_gap = min(self._hello_gap * 2, timing.HELLO_MAX_S)
        if self._unconditional:
            self._unconditional = False
            return True
        return self._alive()

    def probe(self, now: float) -> None:
        """Look whether the receiver lives."""
        self.probe_due = timing.on_grid(now, timing.PROBE_S)
        if self.receiver and not self.lost and not self._alive():
            self.lose(f"{self._to} is dead", now)

    def lose(self, reason: str, now: float) -> None:
        """Hear or see that the receiver is gone."""
        self.ready = False
        self.lost = True
        self.reason = reason
        if self._pinned or self.refused:
            self.hello_due = timing.NEVER
        else:
            self._ask_again(now)

    def refuse(self, reason: str, now: float) -> None:
        """Hear that the receiver will not have us; asking again would not help."""
        self.refused = reason
        self.lose(f"refused by {self._to}: {reason}", now)

    def unknown(self, source: int, now: float) -> None:
        """Hear that the receiver's life `source` does not know us."""
        if self.refused or (self.lost and self._pinned):
            return
        if self.receiver not in (0, source):
            self.lose(f"{self._to} was restarted", now)
        else:
            self.ready = False
            self._ask_again(now)

    def welcome(self, source: int, role: str, rank: str, now: float) -> bool:
        """Hear a welcome; true where it is the first of a new life (`receiver` is then that)."""
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
        return new

    def missing(self) -> str:
        """Say what a wait for the welcome is waiting for."""
        if self._alive():
            return f"{self._to} runs but does not answer"
        return f"{self._to} is not running"

    def _ask_again(self, now: float) -> None:
        self.hello_due = now
        self._hello_gap = timing.HELLO_FIRST_S
        self._unconditional = True
