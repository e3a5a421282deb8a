"""Lock a role: each role and rank has one file, and the process that has the role locks it.

The locks are POSIX record locks (fcntl(2)). A fork does not inherit them, and the kernel releases
them when the process ends. When a process closes *any* descriptor of a file, it loses all of its
locks on that file. So this module registers the locks of this process and looks there first.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from pathlib import Path

from tokenpipe.errors import LaneBusy, LaneLost

from .guard import current_process

_FLOCK = struct.Struct("hhqqi0q")  # struct flock of 64-bit Linux
_WRITE_LOCK = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_NOTE_BYTES = 4096


class RoleLock:
    """A role that this process holds until `release()` or its end."""

    def __init__(self, path: Path, fd: int, note: str) -> None:
        self.path = path
        self.note = note
        self._fd = fd
        self._pid = current_process()
        self._attends = 0

    def attend(self) -> None:
        """Note that the calling thread does the work of this role."""
        self._attends = threading.get_ident()

    @property
    def attended_here(self) -> bool:
        """Whether the calling thread is the last one that called `attend`."""
        return self._attends == threading.get_ident()

    def release(self) -> None:
        """Release the role. A second call, or a call in a forked child, does nothing."""
        with _lock:
            if self._fd < 0 or self._pid != current_process():
                return
            _mine.pop(os.fspath(self.path), None)
            os.close(self._fd)
            self._fd = -1


_mine: dict[str, RoleLock] = {}
# Reentrant: the garbage collector may release a lock while the same thread takes another one.
_lock = threading.RLock()


def _forked() -> None:
    # A child has none of its parent's locks. Another thread may have held the mutex at the fork.
    global _lock
    _lock = threading.RLock()
    _mine.clear()


os.register_at_fork(after_in_child=_forked)


def take(path: Path, note: str = "") -> RoleLock:
    """Lock the file at `path`. Raises LaneBusy with the holder, LaneLost without a directory."""
    with _lock:
        mine = _mine.get(os.fspath(path))
        if mine is not None:
            raise LaneBusy(f"{path.stem} is already held by this process {_said(mine.note)}")
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                raise LaneLost(f"the instance at {path.parent} is gone") from None
            try:
                fcntl.fcntl(fd, fcntl.F_SETLK, _WRITE_LOCK)
            except (BlockingIOError, PermissionError):
                holder = _holder(fd)
                held_note = _read_note(fd)
                os.close(fd)
                raise LaneBusy(
                    f"{path.stem} is held by process {holder or 'unknown'} {_said(held_note)}"
                ) from None
            if _is_at(fd, path):
                break
            os.close(fd)  # an owner that closed has removed this file: lock the new one
        _write_note(fd, note)
        lock = RoleLock(path, fd, note)
        _mine[os.fspath(path)] = lock
        return lock


def holder(path: Path) -> int | None:
    """Return the pid that holds the lock at `path` (0 where the system cannot name it), or None."""
    with _lock:
        if os.fspath(path) in _mine:
            return current_process()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            return _holder(fd)
        finally:
            os.close(fd)


def own(path: Path) -> RoleLock | None:
    """Return this process's lock at `path`, or None where it has none."""
    with _lock:
        return _mine.get(os.fspath(path))


def note(path: Path) -> str:
    """Return the note that the last holder of the lock at `path` wrote, or ""."""
    with _lock:
        if (mine := _mine.get(os.fspath(path))) is not None:
            return mine.note
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return ""
        try:
            return _read_note(fd)
        finally:
            os.close(fd)


def _holder(fd: int) -> int | None:
    answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _WRITE_LOCK))
    return None if answer[0] == fcntl.F_UNLCK else max(answer[4], 0)


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def _write_note(fd: int, note: str) -> None:
    text = json.dumps({"pid": os.getpid(), "note": note[:1024]}).encode()
    os.ftruncate(fd, 0)
    os.pwrite(fd, text, 0)


def _read_note(fd: int) -> str:
    try:
        return str(json.loads(os.pread(fd, _NOTE_BYTES, 0))["note"])
    except (ValueError, KeyError, TypeError):
        return ""  # taken a moment ago and not written yet


def _said(note: str) -> str:
    return f"({note})" if note else "(no note)"
