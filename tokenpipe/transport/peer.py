"""Name one life of a process in a role."""

from __future__ import annotations

import secrets
from typing import NamedTuple


class Peer(NamedTuple):
    """A role, its rank and this life of it."""

    role: str
    rank: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"

    @property
    def route(self) -> str:
        """How its routing ids begin: role:rank:incarnation."""
        return f"{self.role}:{self.rank}:{self.incarnation:x}"


class Role(NamedTuple):
    """A role and rank, whichever life of it."""

    role: str
    rank: str

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"


def new_incarnation() -> int:
    """Return a random id for one life: positive, 63 bits."""
    return secrets.randbits(63) | 1
