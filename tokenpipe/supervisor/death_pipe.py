"""Let the kernel kill a child when this process ends, in whichever way it ends.

Only this process holds the write end of a pipe; the child inherits the read end without knowing of
it. The read end's signal-driven I/O sends SIGKILL to the child at end of file. This needs no
thread and no code in the child, and works on a stopped child. Unlike PR_SET_PDEATHSIG it does not
fire when only the thread that started the child ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import weakref


class DeathPipe:
    """One pipe to one child: let it inherit `child_fd`, then `arm`; `close` at the child's end."""

    def __init__(self) -> None:
        self.child_fd, self._our_fd = os.pipe()  # close-on-exec: a sibling must not hold our end
        _open.add(self)

    def arm(self, pid: int) -> None:
        """Kill the child `pid`, which inherited `child_fd`, at end of file; close our copy."""
        fcntl.fcntl(self.child_fd, fcntl.F_SETOWN, pid)
        fcntl.fcntl(self.child_fd, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(self.child_fd, fcntl.F_GETFL)
        fcntl.fcntl(self.child_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._close_child_fd()

    def close(self) -> None:
        """Close our end. A child that still lives is killed by that."""
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


# A fork of this process would hold the write ends too, and so keep the children alive after our
# death. The fork closes its copies; that is no end of file, for we still hold ours.
os.register_at_fork(after_in_child=_close_all)
