"""Make the two files in memory in which a processor keeps its journal.

They have no path, so nobody can remove them. The engine holds them, so they outlive the processes
of the processor and end with the engine.
"""

from __future__ import annotations

import os
import tempfile


class JournalFiles:
    """The files of one processor."""

    def __init__(self, index: int, directory: os.PathLike[str]) -> None:
        """Make empty files. Without memfd they are removed files in `directory`. Raises OSError."""
        self.fds: tuple[int, ...] = ()
        try:
            for part in range(2):
                self.fds += (_make(f"tokenpipe-journal-{index}-{part}", directory),)
        except OSError:
            self.close()
            raise

    def clear(self) -> None:
        """Drop what they hold, so that the next process begins without requests."""
        for fd in self.fds:
            os.ftruncate(fd, 0)

    def close(self) -> None:
        """Close them. Their memory is free once no process holds them."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)


def _make(name: str, directory: os.PathLike[str]) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)  # close-on-exec
    fd, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    return fd
