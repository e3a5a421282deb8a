"""Name a process in a role, and one incarnation of it."""

from __future__ import annotations

import secrets
from typing import NamedTuple


class Peer(NamedTuple):
    """A role, its rank and one incarnation."""

    role: str
    rank: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"

    @property
    def route(self) -> str:
        """The prefix of its routing ids: role:rank:incarnation."""
        return f"{self.role}:{self.rank}:{self.incarnation:x}"


class Role(NamedTuple):
    """A role and its rank, in any incarnation."""

    role: str
    rank: str

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"


def new_incarnation(like: int = 0) -> int:
    """Return a random id for one incarnation: positive, 63 bits.

    With `like` its low 32 bits are those of that incarnation.
    """
    if like:
        return secrets.randbits(31) << 32 | like & 0xFFFFFFFF
    return secrets.randbits(63) | 1
