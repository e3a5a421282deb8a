"""Describe the owner of a server that runs in the owner's own process."""

from __future__ import annotations

from typing import Protocol


class Draining(Protocol):
    """A server, for its owner."""

    started: bool

    def drain(self, patience_s: float | None = None) -> None:
        """Begin to end; open answers have so long, by default what the topology says."""


class Owner(Protocol):
    """What a server that is one process with its owner must do for it.

    It is entered in the lifespan before anything else, and left when every answer is over and the
    client is closed: then it ends what stands behind the server.
    """

    def begins(self, server: Draining) -> None:
        """Take the server, which is about to run."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...
