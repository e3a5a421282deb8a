"""Notify the supervisor about this process: phase, ready, signs of life, failure.

The words are those of systemd's sd_notify. A child inherits one end of a datagram socket. The
number of this descriptor is in $TOKENPIPE_NOTIFY. A notification never blocks and never fails: it
is dropped if the supervisor does not read. Without a supervisor nothing is sent.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tokenpipe.errors import ConfigError

NOTIFY_VARIABLE = "TOKENPIPE_NOTIFY"
WATCHDOG_S = 0.25  # least time between two signs of life
FAILURE_BYTES = 24_000  # fits one datagram; of a longer text the end is sent
COMM_BYTES = 15  # TASK_COMM_LEN without the zero byte


class Notifier:
    """The child's end. A fork may use it too: each notification has the pid of its sender."""

    def __init__(
        self, end: socket.socket | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._end = end
        self._clock = clock
        self._last_sign = float("-inf")
        self._problem = ""

    @classmethod
    def inherited(cls) -> Notifier:
        """Take the end that the supervisor passed, if any. ConfigError if it is no socket."""
        number = os.environ.pop(NOTIFY_VARIABLE, "")  # children of this process must not use it
        if not number:
            return cls(None)
        try:
            end = socket.socket(fileno=int(number))
        except (ValueError, OSError) as error:
            raise ConfigError(f"{NOTIFY_VARIABLE}={number}: no such socket: {error}") from None
        end.setblocking(False)
        end.set_inheritable(False)  # a grandchild gets a notifier of its own
        return cls(end)

    def phase(self, text: str) -> None:
        """Send the name of the work that this process does now, before it is ready."""
        self._send({"phase": text})

    def ready(self, **facts: Any) -> None:
        """Send that the start is over. `facts` are plain values for the supervisor's owner."""
        self._send({"ready": facts})

    def facts(self, **facts: Any) -> None:
        """Send plain values that the supervisor needs before this process is ready."""
        self._send({"facts": facts})

    def watchdog(self) -> bool:
        """Send a sign of life, at most every 0.25 s. It is cheap: a loop may call it each time.

        Return whether it was sent.
        """
        now = self._clock()
        if now - self._last_sign < WATCHDOG_S:
            return False
        self._last_sign = now
        self._send({"watchdog": 1})
        return True

    def failed(self, failure: str) -> None:
        """Send why this process cannot go on, just before it ends."""
        raw = failure.encode(errors="replace")
        self._send({"failed": raw[-FAILURE_BYTES:].decode(errors="ignore")})

    def problem(self, what: str) -> None:
        """Send what is wrong although this process serves; "" ends it. Send each change once."""
        if what != self._problem:
            self._problem = what
            self._send({"problem": what})

    def left(self, pid: int) -> None:
        """Send that a fork of this process ended, so that it does not count as silent."""
        self._send({"left": pid})

    def close(self) -> None:
        """Close the socket. Later notifications are dropped."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def _send(self, what: dict[str, Any]) -> None:
        if self._end is None:
            return
        # The socket is full if the supervisor is busy, and broken if the supervisor has died.
        with suppress(BlockingIOError, ConnectionError):
            self._end.send(json.dumps({"pid": os.getpid(), **what}).encode())


def set_title(text: str) -> None:
    """Set the name of this process in ps and top to the first 15 bytes of `text`."""
    with open("/proc/self/comm", "wb") as comm:
        comm.write(text.encode()[:COMM_BYTES])
