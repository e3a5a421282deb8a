"""Describe what an API server and its owner call on each other where both are one process."""

from __future__ import annotations

from typing import Protocol


class StoppableServer(Protocol):
    """The server, as its owner sees it."""

    started: bool

    def begin_shutdown(self, patience_s: float | None = None) -> None:
        """Admit no new call, and end once every open response is over.

        Open responses have `patience_s`, by default what the topology says.
        """


class ServerOwner(Protocol):
    """The owner, as the server sees it: a context manager that the server's lifespan enters.

    The lifespan enters it before anything else. It leaves it when every response is over and the
    client is closed; then the owner ends what the server needed.
    """

    def begins(self, server: StoppableServer) -> None:
        """Take the server, which is about to run."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...
