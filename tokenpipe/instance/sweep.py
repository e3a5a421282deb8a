"""Remove the files of dead instances, and never a file of a living one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

from tokenpipe.errors import ConfigError, LaneBusy, LaneLost

from . import role_lock as locks
from .names import lock_name
from .runtime_dir import check_private

OWNER = ("pipeline", "0")
SUPERVISOR = ("supervisor", "0")
INFO_FILE = "instance.json"
HEALTH_FILE = "health.json"
MODEL_CARD_FILE = "model_card.json"
LOGS = "logs"
_SHOWN = 5  # of the names that stayed
_WRITTEN = (INFO_FILE, HEALTH_FILE, MODEL_CARD_FILE)
_OURS = {*_WRITTEN, *(f"{name}.part" for name in _WRITTEN)}


class Swept(NamedTuple):
    """The result for one directory. `said` names the holder, or the files that stayed."""

    directory: Path
    outcome: Literal["removed", "alive", "stayed"]
    said: str = ""


def entries(directory: Path) -> list[Path]:
    """Return the entries of a directory, none if it was removed."""
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []


def remove_files(directory: Path, keep: Collection[str]) -> None:
    """Remove sockets, locks and JSON files of an instance, except the names in `keep`."""
    for entry in entries(directory):
        if entry.name in keep:
            continue
        try:
            socket = stat.S_ISSOCK(entry.lstat().st_mode)
        except FileNotFoundError:  # a client that leaves has just removed its file
            continue
        if socket or entry.name in _OURS or entry.suffix == ".lock":
            entry.unlink(missing_ok=True)


def remove_logs(directory: Path) -> None:
    """Remove the log files of an instance that had no log directory of its own."""
    logs = directory / LOGS
    if logs.is_symlink() or not logs.is_dir():
        return
    for entry in logs.glob("*.log"):
        entry.unlink(missing_ok=True)
    remove_directory(logs)


def remove_directory(directory: Path) -> None:
    """Remove a directory if it is empty."""
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
            raise


def sweep(base: Path) -> Iterator[Swept]:
    """Remove the dead instances below `base`, one by one; yield the result of each.

    An instance is dead if no process holds any of its locks. A directory without locks and
    information file stays: an earlier end left it, because it has a file that is not ours. A
    directory that is not private to this user is skipped.
    """
    if not base.is_dir():
        return
    for directory in sorted(base.iterdir()):
        if not _is_ours(directory):
            continue
        swept = _sweep_one(directory) if _is_instance(directory) else _stayed(directory)
        if swept is not None:
            yield swept


def _is_ours(directory: Path) -> bool:
    try:
        check_private(directory)
    except ConfigError:
        return False
    return True


def _is_instance(directory: Path) -> bool:
    names = {INFO_FILE, lock_name(*OWNER), lock_name(*SUPERVISOR)}
    return any(os.path.lexists(directory / name) for name in names)


def _stayed(directory: Path) -> Swept | None:
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Swept(directory, "stayed", f"cannot be read: {error.strerror}")
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return Swept(directory, "stayed", f"not ours: {shown}" if names else "empty, and no instance's")


def _sweep_one(directory: Path) -> Swept | None:
    with ExitStack() as releasing:
        try:
            # The locks are held meanwhile: an instance that starts under this name is refused.
            for role in (OWNER, SUPERVISOR):
                claim = locks.take(directory / lock_name(*role), "gc")
                releasing.callback(claim.release)
        except LaneBusy as error:
            return Swept(directory, "alive", str(error))
        except LaneLost:  # another process has removed it meanwhile
            return None
        ours = {lock_name(*OWNER), lock_name(*SUPERVISOR)}
        for lock in sorted(directory.glob("*.lock")):
            if lock.name not in ours and (pid := locks.holder(lock)) is not None:
                return Swept(directory, "alive", f"{lock.stem} is held by process {pid}")
        remove_files(directory, ours)
        remove_logs(directory)
        for name in ours:
            (directory / name).unlink(missing_ok=True)
    remove_directory(directory)
    if directory.exists():
        return _stayed(directory)
    return Swept(directory, "removed")
