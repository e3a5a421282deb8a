"""Open the log file of a child's stdout and stderr, and read the end of it."""

from __future__ import annotations

import os
from pathlib import Path

TAIL_BYTES = 4096
TAIL_LINES = 20


class ChildLog:
    """A log file of mode 0600. A restarted child appends to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0  # size of the file at the start of the child

    def open(self) -> int:
        """Return a descriptor to append with; the caller closes it. OSError, also for a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self.path, flags | os.O_NOFOLLOW, 0o600)
        self._start = os.fstat(descriptor).st_size
        return descriptor

    def tail(self) -> str:
        """Return the last lines since `open`, or why they cannot be read."""
        try:
            with open(self.path, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._start, size - TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except FileNotFoundError:  # the file was moved or removed; the report needs no log
            return "(its log is gone)"
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"
        return "\n".join(text.splitlines()[-TAIL_LINES:])


def make_log_dir(directory: Path) -> None:
    """Make a directory and its parents with mode 0700 if they are missing.

    The instance's directory may be among them, and no other user may read it.
    """
    if not directory.is_dir():
        for path in (*reversed(directory.parents), directory):
            path.mkdir(mode=0o700, exist_ok=True)
