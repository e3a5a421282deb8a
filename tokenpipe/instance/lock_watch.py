"""See whether a role is alive, by a descriptor of its lock's file and not by the file's path."""

from __future__ import annotations

import weakref
from pathlib import Path

from . import role_lock as locks


class LockWatch:
    """Watches one role of one instance.

    It keeps the file open that it found locked. So a holder whose file was removed is still seen,
    and a process without free descriptors still sees its peers.
    """

    def __init__(self, path: Path, instance: int) -> None:
        self._path = path
        self._instance = instance
        self._fds: list[int] = []  # one at most
        self._closing = weakref.finalize(self, _close, self._fds)
        self._closing.atexit = False

    def alive(self) -> bool:
        """Return whether a living process holds the role, in this instance."""
        mine = locks.own(self._path)
        if mine is not None:
            return mine.instance == self._instance
        if self._fds and locks.held_for(self._fds[0], self._instance):
            return True
        return self._look_at_path()

    def _look_at_path(self) -> bool:
        """Look for a later holder, which may have another file."""
        try:
            fd = locks.open_lock(self._path)
        except FileNotFoundError:
            return False
        except OSError:
            # A shortage of descriptors is no death. A file that is open shows the death.
            return not self._fds
        if not locks.held_for(fd, self._instance):
            locks.let_go(fd)
            return False
        _close(self._fds)
        self._fds.append(fd)
        return True

    def close(self) -> None:
        """Close the file. A later `alive` opens it again."""
        _close(self._fds)


def _close(fds: list[int]) -> None:
    while fds:
        locks.let_go(fds.pop())
