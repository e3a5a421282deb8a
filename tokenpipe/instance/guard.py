"""Refuse to use an object in a process that did not make it."""

from __future__ import annotations

import os

from tokenpipe.errors import ForkError

_process = os.getpid()


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


def current_process() -> int:
    """Return this process's pid without a system call."""
    return _process


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
