"""The calls between an API server and its owner if both are in one process."""

from __future__ import annotations

from typing import Protocol


class StoppableServer(Protocol):
    """The server, as its owner sees it."""

    started: bool

    def begin_shutdown(self, patience_s: float | None = None) -> None:
        """Refuse new requests, and end when no response is open any more.

        Open responses have `patience_s`, by default what the topology says.
        """


class ServerOwner(Protocol):
    """The owner, as the server sees it: a context manager that the server's lifespan enters.

    The lifespan enters the owner before anything else. It leaves the owner when every response is
    over and the client is closed. Then the owner releases its resources, such as the engine.
    """

    def begins(self, server: StoppableServer) -> None:
        """Take the server, which is about to run."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...
