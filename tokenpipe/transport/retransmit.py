"""Decide when to ask for missing frames and when to call them lost. Pure: time is a parameter."""

from __future__ import annotations

from . import timing


class Retransmission:
    """Follow the first range of missing frames in a window.

    The receiver asks for the range at once, and again every 100 ms without progress. It calls the
    range lost `timeout_s` after the last progress.
    """

    __slots__ = ("_asked", "_first", "_timeout_s", "ask_due", "give_up_due")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._first = 0
        self._asked = 0  # the last frame that was asked for; it may be on its way
        self.ask_due = timing.NEVER
        self.give_up_due = timing.NEVER

    def look(self, hole: tuple[int, int] | None, now: float) -> bool:
        """Note the range that is missing now; return whether to ask for it."""
        if hole is None:
            self.ask_due = self.give_up_due = timing.NEVER
            self._first = self._asked = 0
            return False
        first, last = hole
        if first != self._first:
            self._first = first
            self.ask_due = now if first > self._asked else now + timing.RESEND_S
            self.give_up_due = now + self._timeout_s
        if now < self.ask_due:
            return False
        self._asked = last
        self.ask_due = now + timing.RESEND_S
        return True
