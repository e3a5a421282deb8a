"""Describe what a lane needs of its carrier: ZeroMQ and memory implement it."""

from __future__ import annotations

from typing import Any, Protocol


class Port(Protocol):
    """An end of a lane that can be waited on.

    The descriptor alone does not say whether a message is there, because ZeroMQ's is
    edge-triggered. `idle` is true after `recv` found nothing, until the port is used again. While
    `idle` is true, and only then, an unreadable descriptor means that no message is there.
    """

    lane: str
    idle: bool

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a message may have come."""
        ...

    def readable(self) -> bool:
        """Return whether a message can be received now."""
        ...

    def close(self) -> None:
        """Close the port. A second call does nothing."""
        ...


class SenderPort(Port, Protocol):
    """The sender's end: it sends frames and receives lane messages."""

    def send(self, frame: bytes, /) -> bool:
        """Send a frame without waiting. Return False if the port cannot take it now."""
        ...

    def recv(self) -> bytes | None:
        """Return one message, or None if there is none."""
        ...


class ReceiverPort(Port, Protocol):
    """The receiver's end: each message comes with the route for an answer."""

    @property
    def malformed(self) -> int:
        """How many messages, or parts of messages, have come that are not frames."""
        ...

    @property
    def shut(self) -> int:
        """How many connections were closed because of a message without an end."""
        ...

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer without waiting. Return False if the route is gone or full."""
        ...

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append to `out` the data frame with this lane header and its direct successors.

        It stops after `limit` messages. It returns the first other message (route, frame), or None.
        """
        ...

    def tend(self, now: float) -> float:
        """Close connections with too much of an unfinished message; return when to call again."""
        ...
