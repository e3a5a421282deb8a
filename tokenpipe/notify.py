"""Tell the supervisor about this process: its phase, that it is ready, that it works, its failure.

The words are those of systemd's sd_notify. A child inherits one end of a datagram socket; the
number of that descriptor is in $TOKENPIPE_NOTIFY. A notification never blocks and never fails:
what the supervisor does not read is dropped. Without a supervisor nothing is sent.
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
FAILURE_BYTES = 24_000  # of one datagram; of a longer text the end is sent
COMM_BYTES = 15  # TASK_COMM_LEN without its zero


class Notifier:
    """The child's end. A fork may use it too: each notification carries the pid of its sender."""

    def __init__(
        self, end: socket.socket | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._end = end
        self._clock = clock
        self._last_sign = float("-inf")

    @classmethod
    def inherited(cls) -> Notifier:
        """Take the end that the supervisor passed on, or none. ConfigError: it is no socket."""
        number = os.environ.pop(NOTIFY_VARIABLE, "")  # our own children must not find it
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
        """Name the work that is being done now, on the way to ready."""
        self._send({"phase": text})

    def ready(self, **facts: Any) -> None:
        """Tell that the start is over. `facts` are plain values for the supervisor's owner."""
        self._send({"ready": facts})

    def facts(self, **facts: Any) -> None:
        """Tell plain values about this process that its supervisor needs before it is ready."""
        self._send({"facts": facts})

    def watchdog(self) -> None:
        """Give a sign of life. Cheap: a loop may call it in each of its rounds."""
        now = self._clock()
        if now - self._last_sign >= WATCHDOG_S:
            self._last_sign = now
            self._send({"watchdog": 1})

    def failed(self, failure: str) -> None:
        """Tell why this process cannot go on, just before it ends."""
        raw = failure.encode(errors="replace")
        self._send({"failed": raw[-FAILURE_BYTES:].decode(errors="ignore")})

    def left(self, pid: int) -> None:
        """Tell that a fork of this process ended, so that nobody waits for its sign of life."""
        self._send({"left": pid})

    def close(self) -> None:
        """Close the socket; later notifications are dropped."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def _send(self, what: dict[str, Any]) -> None:
        if self._end is None:
            return
        # A full socket: the supervisor is busy. A broken one: it is gone, and soon so are we.
        with suppress(BlockingIOError, ConnectionError):
            self._end.send(json.dumps({"pid": os.getpid(), **what}).encode())


def set_title(text: str) -> None:
    """Name this process for ps and top: the first 15 bytes of `text`."""
    with open("/proc/self/comm", "wb") as comm:
        comm.write(text.encode()[:COMM_BYTES])
