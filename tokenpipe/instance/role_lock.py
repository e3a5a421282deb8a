"""Say who holds a role: one file per role and rank, locked by the living process that has it.

POSIX record locks: not inherited by a fork, gone with the process whatever kills it. They have one
trap: closing *any* descriptor of the file drops all locks the process has on it. Hence the registry
of this process's own claims, asked before a lock file is ever opened.
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
    """Hold a role until `release()` or the end of the process."""

    def __init__(self, path: Path, fd: int, note: str) -> None:
        self.path = path
        self.note = note
        self._fd = fd
        self._pid = current_process()
        self._attends = 0

    def attend(self) -> None:
        """Say that the calling thread is the one that does this role's work."""
        self._attends = threading.get_ident()

    @property
    def attended_here(self) -> bool:
        """Whether the calling thread was the last to say so: nobody does the work meanwhile."""
        return self._attends == threading.get_ident()

    def release(self) -> None:
        """Give the role up; a second call, or one in a forked child, does nothing."""
        with _lock:
            if self._fd < 0 or self._pid != current_process():
                return
            _mine.pop(os.fspath(self.path), None)
            os.close(self._fd)
            self._fd = -1


_mine: dict[str, RoleLock] = {}
_lock = (
    threading.RLock()
)  # a claim may be let go by the collector, in the middle of another's taking


def _forked() -> None:
    # The child holds none of its parent's locks (and the mutex may have been held by a thread).
    global _lock
    _lock = threading.RLock()
    _mine.clear()


os.register_at_fork(after_in_child=_forked)


def take(path: Path, note: str = "") -> RoleLock:
    """Lock the file at `path`. Raises LaneBusy naming the holder, LaneLost without a directory."""
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
            os.close(fd)  # removed by an owner that closed in between: lock the new file
        _write_note(fd, note)
        claim = RoleLock(path, fd, note)
        _mine[os.fspath(path)] = claim
        return claim


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
    """Return this process's claim of the lock at `path`, None where it has none."""
    with _lock:
        return _mine.get(os.fspath(path))


def note(path: Path) -> str:
    """Return what the last holder of the lock at `path` said of itself, "" where nothing."""
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
