"""Open the descriptors 0 to 2 if the process was started without them."""

from __future__ import annotations

import os
import sys


def open_standard_descriptors() -> None:
    """Open /dev/null for each that is closed. Else the next socket or file would become stdout."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)
