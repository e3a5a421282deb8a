"""Tell one's supervisor how far one is: in which phase, ready, alive, or why not.

A child inherits one end of a datagram socket; its number is in $TOKENPIPE_PULSE. Saying something
never blocks and never fails: what the supervisor does not read is dropped. Without a supervisor
nothing is said.
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

PULSE_VARIABLE = "TOKENPIPE_PULSE"
BEAT_S = 0.25  # signs of life are said at most so often
STORY_BYTES = 24_000  # of one datagram; the end of a longer story is what counts
COMM_BYTES = 15  # TASK_COMM_LEN without its zero


class Pulse:
    """The child's end. May be used on after a fork: each process signs with its own pid."""

    def __init__(
        self, end: socket.socket | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._end = end
        self._clock = clock
        self._last_beat = float("-inf")

    @classmethod
    def inherited(cls) -> Pulse:
        """Take the end that a supervisor passed on, or none."""
        number = os.environ.pop(PULSE_VARIABLE, "")  # what we start has none, or one of its own
        if not number:
            return cls(None)
        try:
            end = socket.socket(fileno=int(number))
        except (ValueError, OSError) as error:
            raise ConfigError(f"{PULSE_VARIABLE}={number}: no such socket: {error}") from None
        end.setblocking(False)
        end.set_inheritable(False)  # a grandchild has a pulse of its own
        return cls(end)

    def phase(self, text: str) -> None:
        """Say what is being done now, on the way to ready."""
        self._say({"phase": text})

    def ready(self, **facts: Any) -> None:
        """Say that the start is over. `facts` are plain values for the supervisor's owner."""
        self._say({"ready": facts})

    def beat(self) -> None:
        """Say that one's loop goes round; cheap enough for every turn of it."""
        now = self._clock()
        if now - self._last_beat >= BEAT_S:
            self._last_beat = now
            self._say({"beat": 1})

    def failed(self, story: str) -> None:
        """Say why one cannot go on, just before the end."""
        raw = story.encode(errors="replace")
        self._say({"failed": raw[-STORY_BYTES:].decode(errors="ignore")})

    def left(self, pid: int) -> None:
        """Say that a process forked from here is gone, so that nobody waits for its beat."""
        self._say({"left": pid})

    def close(self) -> None:
        """Give the end back."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def _say(self, what: dict[str, Any]) -> None:
        if self._end is None:
            return
        with suppress(BlockingIOError, ConnectionError):  # it is busy, or gone: then so are we soon
            self._end.send(json.dumps({"pid": os.getpid(), **what}).encode())


def set_title(text: str) -> None:
    """Name this process for ps and top: the first 15 bytes of `text`."""
    with open("/proc/self/comm", "wb") as comm:
        comm.write(text.encode()[:COMM_BYTES])
