"""What can become of the sender of a lane, as its receiver tells it."""

from __future__ import annotations

from typing import NamedTuple


class PeerUp(NamedTuple):
    """A life of the sender said hello; the frames that follow are its."""

    incarnation: int


class PeerDown(NamedTuple):
    """It died or was replaced; nothing more of it follows."""

    incarnation: int
    reason: str


class PeerEnded(NamedTuple):
    """It ended the lane and everything it sent is applied."""

    incarnation: int


PeerEvent = PeerUp | PeerDown | PeerEnded
