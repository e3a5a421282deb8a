"""The earliest of a few deadlines, kept up to date as they change."""

from __future__ import annotations

from typing import Generic, TypeVar

NEVER = float("inf")
Member = TypeVar("Member")


class Deadlines(Generic[Member]):
    """Holds at most one deadline for each member, in seconds of one clock."""

    def __init__(self) -> None:
        self._due: dict[Member, float] = {}
        self._earliest = NEVER
        self._stale = False  # the earliest deadline was removed or moved to a later time

    def set(self, member: Member, due: float) -> None:
        """Set or move the deadline of a member; NEVER removes it."""
        before = self._due.get(member, NEVER)
        if due == before:
            return
        if due == NEVER:
            del self._due[member]
        else:
            self._due[member] = due
        if due <= self._earliest:
            self._earliest = due
            self._stale = False
        elif before == self._earliest:
            self._stale = True

    @property
    def earliest(self) -> float:
        """The earliest deadline, or NEVER."""
        if self._stale:
            self._earliest = min(self._due.values(), default=NEVER)
            self._stale = False
        return self._earliest

    def take(self, now: float) -> list[Member]:
        """Remove the deadlines that are reached, and return their members."""
        reached = [member for member, due in self._due.items() if due <= now]
        for member in reached:
            self.set(member, NEVER)
        return reached
