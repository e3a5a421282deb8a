"""Read a child's notifications: phase, ready, signs of life, failure."""

from __future__ import annotations

import json
import socket
from typing import Any

MESSAGE_BYTES = 1 << 16


class NotifyReader:
    """The supervisor's end of one child's notify socket, with the state read from it so far.

    All times are of the supervisor's clock.
    """

    def __init__(self, started: float) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._ours = ours
        self._theirs: socket.socket | None = theirs
        self.phase = "starting its interpreter"
        self.phase_since = started
        self.failure = ""  # why the child failed, as the child says
        self.problem = ""  # what is wrong with a ready child, as the child says
        self.facts: dict[str, Any] = {}  # facts about the child, the latest of each name
        self.ready: dict[int, dict[str, Any]] = {}  # facts by pid: the child may have forked
        self.last_sign: dict[int, float] = {}  # last sign of life of each ready process, by pid

    @property
    def child_fd(self) -> int:
        """The descriptor that the child inherits."""
        assert self._theirs is not None, "the child has started"
        return self._theirs.fileno()

    def started(self) -> None:
        """Close our copy of the child's end."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def read(self, now: float) -> None:
        """Read all notifications that came. A closed end brings none and does not mean a death."""
        while True:
            try:
                raw = self._ours.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                raw = b""
            if not raw:
                return
            try:
                notification = json.loads(raw)
                self._take(notification, int(notification["pid"]), now)
            except (ValueError, TypeError, KeyError):
                continue  # not from a Notifier: other code wrote to a descriptor by mistake

    def _take(self, notification: dict[str, Any], pid: int, now: float) -> None:
        if "phase" in notification:
            self.phase, self.phase_since = str(notification["phase"]), now
        elif "facts" in notification:
            self.facts.update(notification["facts"])
        elif "ready" in notification:
            self.ready[pid] = dict(notification["ready"])
            self.last_sign[pid] = now
        elif "watchdog" in notification:
            if pid in self.ready:
                self.last_sign[pid] = now
        elif "problem" in notification:
            self.problem = str(notification["problem"])
        elif "failed" in notification:
            self.failure = str(notification["failed"])
        elif "left" in notification:
            gone = int(notification["left"])
            self.ready.pop(gone, None)
            self.last_sign.pop(gone, None)

    def forgive(self, now: float) -> None:
        """Count silence from now on: the reader itself did not run."""
        self.last_sign = dict.fromkeys(self.last_sign, now)

    def close(self) -> None:
        """Close both ends."""
        self.started()
        self._ours.close()
