"""Hold one running pipeline's directory: its id, its sockets, the locks of its roles."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenpipe.errors import ConfigError, LaneBusy, LaneLost

from . import role_lock as locks
from .atomic_write import write_whole
from .guard import ForkGuard, current_process
from .lock_watch import LockWatch
from .names import USUAL_LANE, check_room, directory_name, lock_name
from .role_lock import RoleLock
from .runtime_dir import check_base, check_private, default_base, make_private, resolved
from .sweep import (
    INFO_FILE,
    OWNER,
    SUPERVISOR,
    entries,
    remove_directory,
    remove_files,
    remove_logs,
)
from .upkeep import Upkeep

ENDPOINT_VARIABLE = "TOKENPIPE_ENDPOINT"
_MAX_INFO_BYTES = 1 << 20


class Instance:
    """The directory of an instance. `create` makes and owns it, `attach` reads it.

    `info` is what instance.json holds: `instance` (the id), `pid`, `name` and what the creator
    gave.
    """

    def __init__(
        self,
        directory: Path,
        info: dict[str, Any],
        owner: RoleLock | None,
    ) -> None:
        self.directory = directory
        self.info = info
        self.id: int = info["instance"]
        self._owner = owner
        self._watches: dict[tuple[str, str], LockWatch] = {}
        self._upkeep = Upkeep(directory, owns=owner is not None)
        if owner is not None:
            self._upkeep.add_lock(owner)
            self._upkeep.add_text(INFO_FILE, _info_text(info))
        self._guard = ForkGuard()

    @classmethod
    def create(
        cls,
        base: Path | None,
        name: str | None,
        info: Mapping[str, Any],
        *,
        longest_lane: str = USUAL_LANE,
    ) -> Instance:
        """Make the directory, lock it and write instance.json. Raises ConfigError or LaneBusy.

        What a dead instance of that name left is taken over. `longest_lane` is the longest name
        this instance will have a socket for.
        """
        base = _base(base, name, longest_lane)
        instance = secrets.randbits(63) | 1
        directory, owner = _own_directory(base, name, longest_lane, instance)
        # The predecessor is dead, because its lock was free. Locks of roles may still be held.
        remove_files(directory, {entry.name for entry in directory.glob("*.lock")})
        full = {
            **info,
            "instance": instance,
            "pid": os.getpid(),
            "name": name or directory.name,
        }
        write_whole(directory / INFO_FILE, _info_text(full))
        return cls(directory, full, owner)

    @classmethod
    def attach(cls, endpoint: str | os.PathLike[str] | None = None) -> Instance:
        """Read a running instance; None takes $TOKENPIPE_ENDPOINT. Raises ConfigError, LaneLost."""
        given = os.environ.get(ENDPOINT_VARIABLE, "") if endpoint is None else os.fspath(endpoint)
        if not given:
            raise ConfigError(f"no endpoint given and {ENDPOINT_VARIABLE} is not set")
        path = Path(given).absolute()
        if not os.path.lexists(path):
            raise LaneLost(f"there is no instance at {path}")
        check_private(path)
        directory = path.resolve()
        instance = cls(directory, _read_info(directory), None)
        if not instance.alive(*OWNER):
            raise LaneLost(
                f"the instance at {directory} is gone: its pipeline "
                f"(process {instance.info.get('pid')}) no longer runs"
            )
        return instance

    def lane_path(self, lane: str) -> str:
        """Return the path of a lane's socket, at most 107 bytes. Raises ConfigError."""
        check_room(self.directory, lane)
        return os.fspath(self.directory / lane)

    def claim(self, role: str, rank: str, note: str = "") -> RoleLock:
        """Take a role for this process. Raises LaneBusy naming its holder."""
        lock = locks.take(self.directory / lock_name(role, rank), note, self.id)
        self._upkeep.add_lock(lock)
        return lock

    def own(self, role: str, rank: str) -> RoleLock | None:
        """Return this process's lock of a role, or None if it has none."""
        return locks.own(self.directory / lock_name(role, rank))

    def alive(self, role: str, rank: str) -> bool:
        """Return whether a living process holds the role in this instance.

        If a new instance has taken over the name of a dead one, its processes hold the locks. The
        result is False then. A removed file, or a shortage of descriptors, is no death.
        """
        watch = self._watches.get((role, rank))
        if watch is None:
            watch = LockWatch(self.directory / lock_name(role, rank), self.id)
            self._watches[role, rank] = watch
        return watch.alive()

    @property
    def running(self) -> bool:
        """Whether the pipeline of this instance lives."""
        return self.alive(*OWNER)

    # --- files that another program may remove ---

    def keep(self) -> None:
        """Make this process's files again where they are missing. Call it often: it is cheap.

        Call it in the thread that uses the lanes.
        """
        if self._guard.pid == current_process():
            self._upkeep.look(lambda: self.alive(*OWNER))

    def restore(self) -> None:
        """Make the files of this process that are missing now, without waiting for a second look.

        For the creator: it knows that the instance is not closed.
        """
        self._guard.check("Instance")
        self._upkeep.restore()

    def keep_text(self, name: str) -> None:
        """Keep a file of the directory as it is now. Raises OSError if it cannot be read."""
        self._upkeep.add_text(name, (self.directory / name).read_text())

    def keep_socket(self, name: str, again: Callable[[], None]) -> None:
        """Keep a socket; `again` binds it again. `forget_socket` ends this."""
        self._upkeep.add(name, again)

    def forget_socket(self, name: str) -> None:
        """Keep a socket no longer."""
        self._upkeep.remove(name)

    def note(self, role: str, rank: str) -> str:
        """Return the note that the role's last holder wrote."""
        return locks.note(self.directory / lock_name(role, rank))

    def close(self) -> list[str]:
        """Remove the files of this instance. Return the names of the files that stayed.

        Only the creator removes anything, and only in the process that created; a second call does
        nothing. Each caller closes the files that it watches.
        """
        for watch in self._watches.values():
            watch.close()
        if self._owner is None:
            return []
        self._guard.check("Instance")
        self._upkeep = Upkeep(self.directory, owns=False)  # keeps nothing any more
        # A reservation keeps the directory longer than this instance lives.
        remove_files(self.directory, {self._owner.path.name, lock_name(*SUPERVISOR)})
        # The owner's lock goes last: until then no other instance can use this name.
        stayed = sorted(e.name for e in entries(self.directory) if e != self._owner.path)
        self._owner.path.unlink(missing_ok=True)
        self._owner.release()
        self._owner = None
        remove_directory(self.directory)
        return stayed


class Reservation:
    """Keep an instance's directory and its name while its engine is restarted.

    The engine's `Instance.create` with the same base and name takes place inside.
    """

    def __init__(self, directory: Path, claim: RoleLock) -> None:
        self.directory = directory
        self._claim = claim
        self._upkeep = Upkeep(directory, owns=True)
        self._upkeep.add_lock(claim)
        self._guard = ForkGuard()

    @classmethod
    def take(cls, base: Path | None, name: str, *, longest_lane: str = USUAL_LANE) -> Reservation:
        """Make the directory and lock it. Raises ConfigError, or LaneBusy with the holder."""
        base = _base(base, name, longest_lane)
        while True:
            directory = _make_directory(base, name, longest_lane)
            try:
                claim = locks.take(directory / lock_name(*SUPERVISOR), f"supervisor of {name}")
            except LaneLost:  # another process has just removed it
                continue
            owner = locks.holder(directory / lock_name(*OWNER))
            if owner is not None:
                claim.release()
                raise LaneBusy(f"instance {name!r} in {base} is already running: process {owner}")
            return cls(directory, claim)

    def keep(self) -> None:
        """Make the directory and its lock again where they were removed. Call it often."""
        self._upkeep.look(lambda: True)

    def clear(self) -> None:
        """Remove the files that a dead engine left. Do nothing while an engine lives."""
        self._guard.check("Reservation")
        if locks.holder(self.directory / lock_name(*OWNER)) is None:
            remove_files(self.directory, {self._claim.path.name})

    def close(self, *, logs: bool = False) -> None:
        """Release the directory and remove it unless it is in use; `logs`: remove its logs too."""
        self.clear()
        self._upkeep = Upkeep(self.directory, owns=False)
        if logs:
            remove_logs(self.directory)
        self._claim.path.unlink(missing_ok=True)
        self._claim.release()
        remove_directory(self.directory)


def _base(given: Path | None, name: str | None, longest_lane: str) -> Path:
    """Return the base, made if missing; one that is too long is refused before that."""
    if given is None:
        return default_base()
    base = resolved(given)
    entry = _unnamed() if name is None else directory_name(base, name, longest_lane)
    check_room(base / entry, longest_lane)
    return check_base(given)


def _unnamed() -> str:
    return f"i{secrets.token_hex(4)}"


def _own_directory(
    base: Path, name: str | None, longest_lane: str, instance: int
) -> tuple[Path, RoleLock]:
    while True:
        directory = _make_directory(base, name, longest_lane)
        note = f"instance {name or directory.name}"
        try:
            owner = locks.take(directory / lock_name(*OWNER), note, instance)
        except LaneBusy as error:
            raise LaneBusy(f"instance {name!r} in {base} is already running: {error}") from None
        except LaneLost:  # a predecessor of that name has just removed the directory
            continue
        return directory, owner


def _make_directory(base: Path, name: str | None, longest_lane: str) -> Path:
    if name is not None:
        directory = base / directory_name(base, name, longest_lane)
        check_room(directory, longest_lane)
        make_private(directory, exist_ok=True)
        return directory
    while True:
        directory = base / _unnamed()
        check_room(directory, longest_lane)
        try:
            make_private(directory, exist_ok=False)
        except FileExistsError:
            continue
        return directory


def _info_text(info: Mapping[str, Any]) -> str:
    return json.dumps(info, indent=1)


def _read_info(directory: Path) -> dict[str, Any]:
    path = directory / INFO_FILE
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_INFO_BYTES)
        info = json.loads(text)
    except FileNotFoundError:
        raise LaneLost(f"there is no instance at {directory} (no {INFO_FILE})") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(info, dict) or not isinstance(info.get("instance"), int):
        raise ConfigError(f"{path}: not the description of an instance")
    return info
