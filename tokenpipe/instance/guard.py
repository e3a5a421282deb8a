"""Refuse to use an object in a process that did not make it."""

from __future__ import annotations

import os
from collections.abc import Callable

from tokenpipe.errors import ForkError

_process = os.getpid()


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


def current_process() -> int:
    """Return this process's pid without a system call."""
    return _process


def close_at_exit(close: Callable[[], object], error: BaseException | None) -> None:
    """Close an object at the end of its `with` block. `error` is what leaves the block.

    If a forked child leaves the block of its parent, the object is its parent's. An error that
    leaves the block, such as SystemExit, goes on, and no ForkError replaces it.
    """
    try:
        close()
    except ForkError:
        if error is None:
            raise


class ForkGuard:
    """Remember the process that made an object.

    A check costs one comparison. Without it a forked child would share sockets with its parent,
    and each could take the other's messages.
    """

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = _process

    def check(self, what: str) -> None:
        """Raise ForkError where this is not the process that made `what`."""
        if self.pid != _process:
            raise ForkError(
                f"{what} was made in process {self.pid} and cannot be used in its fork {_process}; "
                "make a new one here"
            )
