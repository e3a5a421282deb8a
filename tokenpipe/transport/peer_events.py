"""Name the events in the life of a lane's sender, as its receiver reports them."""

from __future__ import annotations

from typing import NamedTuple


class PeerUp(NamedTuple):
    """A sender was welcomed. The frames that follow come from it."""

    incarnation: int


class PeerDown(NamedTuple):
    """The sender died or was replaced. No frame of it follows."""

    incarnation: int
    reason: str


class PeerEnded(NamedTuple):
    """The sender ended the lane, and all of its frames are applied."""

    incarnation: int


PeerEvent = PeerUp | PeerDown | PeerEnded
