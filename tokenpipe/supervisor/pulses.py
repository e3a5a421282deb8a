"""Hear what a child says of itself: its phase, that it is ready, that it lives."""

from __future__ import annotations

import json
import socket
from typing import Any

MESSAGE_BYTES = 1 << 16


class PulseReader:
    """One child's words so far. `time` is whatever clock the supervisor has."""

    def __init__(self, started: float) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._ours = ours
        self._theirs: socket.socket | None = theirs
        self.phase = "starting its interpreter"
        self.phase_since = started
        self.story = ""  # why it failed, in its own words
        self.ready: dict[int, dict[str, Any]] = {}  # facts by pid: it may have forked
        self.beats: dict[int, float] = {}  # by pid, from ready on

    @property
    def child_fd(self) -> int:
        """What the child inherits."""
        assert self._theirs is not None, "the child has started"
        return self._theirs.fileno()

    def started(self) -> None:
        """Close our copy of the child's end."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def read(self, now: float) -> None:
        """Take what was said. An end that is closed says nothing any more, which is no death."""
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
                said = json.loads(raw)
                self._heard(said, int(said["pid"]), now)
            except (ValueError, TypeError, KeyError):
                continue  # no words of ours: somebody else's code wrote to a descriptor it guessed

    def _heard(self, said: dict[str, Any], pid: int, now: float) -> None:
        if "phase" in said:
            self.phase, self.phase_since = str(said["phase"]), now
        elif "ready" in said:
            self.ready[pid] = dict(said["ready"])
            self.beats[pid] = now
        elif "beat" in said:
            if pid in self.ready:
                self.beats[pid] = now
        elif "failed" in said:
            self.story = str(said["failed"])
        elif "left" in said:
            gone = int(said["left"])
            self.ready.pop(gone, None)
            self.beats.pop(gone, None)

    def close(self) -> None:
        """Give both ends back."""
        self.started()
        self._ours.close()
