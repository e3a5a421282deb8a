"""Let the kernel kill a child when this process ends for any reason.

Only this process holds the write end of a pipe. The child inherits the read end and never uses it.
The read end's signal-driven I/O sends SIGKILL to the child at end of file. This needs no thread
and no code in the child, and it works on a stopped child. PR_SET_PDEATHSIG would also kill the
child when only the thread that started the child ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import weakref


class DeathPipe:
    """One pipe to one child. The child inherits `child_fd`; then call `arm`; at its end `close`."""

    def __init__(self) -> None:
        self.child_fd, self._our_fd = os.pipe()  # close-on-exec: a sibling must not hold _our_fd
        _open.add(self)

    def arm(self, pid: int) -> None:
        """Have the kernel kill the child `pid` at end of file, and close our copy of `child_fd`."""
        fcntl.fcntl(self.child_fd, fcntl.F_SETOWN, pid)
        fcntl.fcntl(self.child_fd, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(self.child_fd, fcntl.F_GETFL)
        fcntl.fcntl(self.child_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._close_child_fd()

    def close(self) -> None:
        """Close our end. This kills the child if it still lives."""
        self._close_child_fd()
        _open.discard(self)
        if self._our_fd >= 0:
            os.close(self._our_fd)
            self._our_fd = -1

    def _close_child_fd(self) -> None:
        if self.child_fd >= 0:
            os.close(self.child_fd)
            self.child_fd = -1


_open: weakref.WeakSet[DeathPipe] = weakref.WeakSet()


def _close_all() -> None:
    for pipe in list(_open):
        pipe.close()


# A fork of this process inherits the write ends. It would keep the children alive after this
# process dies, so it closes its copies. The children see no end of file: this process has its own.
os.register_at_fork(after_in_child=_close_all)
