"""Refuse to use an object in a process that did not make it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

from tokenpipe.errors import ForkError, WrongThread

NOBODY = 1  # no thread has this ident
_T = TypeVar("_T")
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
        """Raise ForkError if this is not the process that made `what`."""
        if self.pid != _process:
            raise ForkError(
                f"{what} was made in process {self.pid} and cannot be used in its fork {_process}; "
                "make a new one here"
            )


class OwnerGuard(ForkGuard):
    """Let one thread use an object: the first that calls a method of it after it was made.

    A check costs two comparisons. Without it two threads would share sockets, and libzmq would
    abort the process or hang. When the owner has ended, the next thread may use the object.
    Any thread may close it while the owner does not wait in a call.
    """

    __slots__ = ("_name", "_took", "_waits", "thread")

    def __init__(self, took: Callable[[int], object] | None = None) -> None:
        """`took` is called with the ident of a thread that becomes the owner, or NOBODY."""
        super().__init__()
        self.thread = 0
        self._name = ""
        self._took = took
        self._waits = False

    def check(self, what: str) -> None:
        """Raise ForkError or WrongThread if this thread must not use `what`."""
        if self.thread != get_ident() or self.pid != _process:
            super().check(what)
            if self.thread and _lives(self.thread):
                raise self._wrong(what)
            self._own(get_ident())

    def check_close(self, what: str) -> None:
        """Take `what` over to close it. Raises as `check` does where its owner waits in a call."""
        super().check(what)
        if self._waits and self.thread != get_ident():
            raise self._wrong(what)
        self._own(get_ident())

    def release(self) -> None:
        """Let the next thread that uses the object own it."""
        self.thread = 0
        if self._took is not None:
            self._took(NOBODY)

    def wait(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of a call that may wait for long."""
        self._waits = True
        try:
            return call(*arguments)
        finally:
            self._waits = False

    def _own(self, thread: int) -> None:
        self.thread, self._name = thread, threading.current_thread().name
        if self._took is not None:
            self._took(thread)

    def _wrong(self, what: str) -> WrongThread:
        me = threading.current_thread().name
        return WrongThread(
            f"{what} belongs to thread {self._name!r}, which used it first, and cannot be used in "
            f"thread {me!r}; make another one here"
        )


def _lives(thread: int) -> bool:
    return any(one.ident == thread for one in threading.enumerate())
