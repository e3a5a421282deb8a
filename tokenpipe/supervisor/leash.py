"""Tie a child's life to this process: the kernel kills it when we are gone, however we go.

A pipe whose write end only we hold and whose read end the child inherits without knowing; its
signal-driven I/O is set to SIGKILL the child at end of file. This needs no thread and no code in
the child, works on a stopped child, and, unlike PR_SET_PDEATHSIG, does not fire when merely the
thread that started the child ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import weakref


class Leash:
    """One pipe to one child: pass `child_fd` to it, then `tie`; `release` lets it go."""

    def __init__(self) -> None:
        self.child_fd, self._our_fd = os.pipe()  # close-on-exec: a sibling must not hold our end
        _held.add(self)

    def tie(self, pid: int) -> None:
        """Arm the pipe for the child that inherited `child_fd`, and close our copy of that."""
        fcntl.fcntl(self.child_fd, fcntl.F_SETOWN, pid)
        fcntl.fcntl(self.child_fd, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(self.child_fd, fcntl.F_GETFL)
        fcntl.fcntl(self.child_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._close_child_fd()

    def release(self) -> None:
        """Close our end; a child that is still there dies of it."""
        self._close_child_fd()
        _held.discard(self)
        if self._our_fd >= 0:
            os.close(self._our_fd)
            self._our_fd = -1

    def _close_child_fd(self) -> None:
        if self.child_fd >= 0:
            os.close(self.child_fd)
            self.child_fd = -1


_held: weakref.WeakSet[Leash] = weakref.WeakSet()


def _drop_all() -> None:
    for leash in list(_held):
        leash.release()


# A forked copy of us would hold the write ends too and so keep our children alive after our death.
# Its closing ours is no end of file: we still hold them.
os.register_at_fork(after_in_child=_drop_all)
