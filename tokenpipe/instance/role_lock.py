"""Lock a role: each role and rank has one file, and the process that has the role locks it.

The locks are POSIX record locks (fcntl(2)). A fork does not inherit them, and the kernel releases
them when the process ends. When a process closes *any* descriptor of a file, it loses all of its
locks on that file. So this module registers the locks of this process and looks there first, and
`let_go` closes no descriptor of a file that this process has locked.

A lock belongs to the file and not to its path. A holder whose file was removed still holds it for
all who have the file open. `RoleLock.keep` makes the file again for all who come later.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from collections.abc import Collection
from pathlib import Path

from tokenpipe.errors import LaneBusy, LaneLost

from .guard import current_process

_FLOCK = struct.Struct("hhqqi0q")  # struct flock of 64-bit Linux
_WRITE_LOCK = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_LOCK_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_NOTE_BYTES = 4096


class RoleLock:
    """A role that this process holds until `release()` or its end."""

    def __init__(self, path: Path, fd: int, note: str, instance: int) -> None:
        self.path = path
        self.note = note
        self.instance = instance
        self._fds = [fd]  # the last one is of the file that was at the path at the last look
        self._files = {_identity(os.fstat(fd))}
        self._pid = current_process()
        self._attends = 0

    def attend(self) -> None:
        """Note that the calling thread does the work of this role."""
        self._attends = threading.get_ident()

    @property
    def attended_here(self) -> bool:
        """Whether the calling thread is the last one that called `attend`."""
        return self._attends == threading.get_ident()

    @property
    def held(self) -> bool:
        """Whether `release` was not called yet."""
        return bool(self._fds)

    @property
    def in_place(self) -> bool:
        """Whether the file is at its path, so that all who come later find the lock."""
        with _lock:
            foreign = self._pid != current_process()
            return foreign or not self._fds or _is_at(self._files, self.path)

    def keep(self) -> bool:
        """Make the file again if it was removed, and lock it. Return whether a file was made.

        Raises LaneBusy if another process has taken the role in the meantime, OSError without a
        directory or a descriptor. This process then still has the role, and the next call tries
        again. A call after `release`, or in a forked child, does nothing.
        """
        with _lock:
            if self.in_place:
                return False
            fd = os.open(self.path, _LOCK_FLAGS | os.O_CREAT, 0o600)
            try:
                fcntl.fcntl(fd, fcntl.F_SETLK, _WRITE_LOCK)
            except (BlockingIOError, PermissionError):
                busy = _busy(self.path, fd)
                let_go(fd)
                raise busy from None
            _write_note(fd, self.note, self.instance)
            self._fds.append(fd)
            self._files.add(_identity(os.fstat(fd)))
            return True

    def touch(self) -> None:
        """Set the file's times to now. Raises OSError."""
        with _lock:
            if self._fds and self._pid == current_process():
                os.utime(self._fds[-1])

    def release(self) -> None:
        """Release the role. A second call, or a call in a forked child, does nothing."""
        with _lock:
            if not self._fds or self._pid != current_process():
                return
            _mine.pop(os.fspath(self.path), None)
            for fd in self._fds:
                os.close(fd)
            self._fds.clear()


_mine: dict[str, RoleLock] = {}
# Reentrant: the garbage collector may release a lock while the same thread takes another one.
_lock = threading.RLock()


def _forked() -> None:
    # A child has none of its parent's locks. Another thread may have held the mutex at the fork.
    global _lock
    _lock = threading.RLock()
    _mine.clear()


os.register_at_fork(after_in_child=_forked)


def take(path: Path, note: str = "", instance: int = 0) -> RoleLock:
    """Lock the file at `path`, for a role of the instance with this id.

    Raises LaneBusy with the holder, LaneLost without a directory.
    """
    with _lock:
        mine = _mine.get(os.fspath(path))
        if mine is not None:
            raise LaneBusy(f"{path.stem} is already held by this process {_said(mine.note)}")
        while True:
            try:
                fd = os.open(path, _LOCK_FLAGS | os.O_CREAT, 0o600)
            except FileNotFoundError:
                raise LaneLost(f"the instance at {path.parent} is gone") from None
            try:
                fcntl.fcntl(fd, fcntl.F_SETLK, _WRITE_LOCK)
            except (BlockingIOError, PermissionError):
                busy = _busy(path, fd)
                os.close(fd)
                raise busy from None
            if _is_at({_identity(os.fstat(fd))}, path):
                break
            os.close(fd)  # an owner that closed has removed this file: lock the new one
        _write_note(fd, note, instance)
        lock = RoleLock(path, fd, note, instance)
        _mine[os.fspath(path)] = lock
        return lock


def holder(path: Path) -> int | None:
    """Return the pid that holds the lock at `path` (0 if the system cannot name it), or None.

    Raises OSError if the file is there and cannot be opened. Nobody knows then.
    """
    with _lock:
        if os.fspath(path) in _mine:
            return current_process()
        try:
            fd = open_lock(path)
        except FileNotFoundError:
            return None
        try:
            return _holder(fd)
        finally:
            os.close(fd)


def open_lock(path: Path) -> int:
    """Open the lock file at `path`; `let_go` closes it. Raises OSError."""
    return os.open(path, _LOCK_FLAGS)


def let_go(fd: int) -> None:
    """Close a descriptor of a lock file, or keep it while this process has locked that file."""
    with _lock:
        there = _identity(os.fstat(fd))
        for lock in _mine.values():
            if there in lock._files:
                lock._fds.insert(0, fd)
                return
        os.close(fd)


def held_for(fd: int, instance: int) -> bool:
    """Return whether another process holds the lock of this file for the instance.

    Where the system does not answer, or the holder is just writing its note, it counts as held.
    """
    try:
        if _holder(fd) is None:
            return False
        said = _read(fd).get("instance")
    except OSError:
        return True
    return said is None or said == instance


def own(path: Path) -> RoleLock | None:
    """Return this process's lock at `path`, or None if it has none."""
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


def _busy(path: Path, fd: int) -> LaneBusy:
    holder = _holder(fd) or "unknown"
    return LaneBusy(f"{path.stem} is held by process {holder} {_said(_read_note(fd))}")


def _holder(fd: int) -> int | None:
    answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _WRITE_LOCK))
    return None if answer[0] == fcntl.F_UNLCK else max(answer[4], 0)


def _is_at(files: Collection[tuple[int, int]], path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return _identity(there) in files


def _identity(there: os.stat_result) -> tuple[int, int]:
    return there.st_dev, there.st_ino


def _write_note(fd: int, note: str, instance: int) -> None:
    said = {"pid": os.getpid(), "note": note[:1024], "instance": instance}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(said).encode(), 0)


def _read_note(fd: int) -> str:
    return str(_read(fd).get("note", ""))


def _read(fd: int) -> dict[str, object]:
    """Return what the holder wrote; nothing if it is just writing."""
    try:
        said = json.loads(os.pread(fd, _NOTE_BYTES, 0))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _said(note: str) -> str:
    return f"({note})" if note else "(no note)"
