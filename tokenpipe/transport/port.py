"""What a lane needs of the thing that carries bytes: a narrow face with several backs."""

from __future__ import annotations

from typing import Any, Protocol


class Port(Protocol):
    """An end that can be waited on.

    The descriptor alone does not say whether a message is there (ZeroMQ's is a bell, not a level):
    `idle` is true once `recv` found nothing and nothing was done with the port since. Then, and
    only then, a silent descriptor means that there is nothing.
    """

    lane: str
    idle: bool

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when something may have come."""
        ...

    def readable(self) -> bool:
        """Tell whether a message can be received now."""
        ...

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        ...


class SenderPort(Port, Protocol):
    """The sender's end: frames go out, lane messages come back."""

    def send(self, frame: bytes, /) -> bool:
        """Hand a frame over without waiting; False where it is not taken now."""
        ...

    def recv(self) -> bytes | None:
        """Take one message, or None."""
        ...


class ReceiverPort(Port, Protocol):
    """The receiver's end: messages come in with the route they can be answered by."""

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer without waiting; False where the route is gone or full."""
        ...

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append the data frame with that lane header and those that follow it in number.

        Stops after `limit` messages; returns the first other message, or None.
        """
        ...

    def realign(self) -> None:
        """Drop what is left of a message with more parts than ours have."""
        ...
