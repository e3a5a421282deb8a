"""Make the files of this process again where another program removed them, and keep them fresh.

A program that cleans temporary directories removes what was not changed for a while. Nobody loses
its role or its connections by that, but whoever comes later would find nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tokenpipe.errors import TokenpipeError

from .atomic_write import write_whole
from .role_lock import RoleLock
from .runtime_dir import make_private

LOOK_S = 0.5  # between two looks
TOUCH_S = 600.0  # between two times that the files' times are set
_log = logging.getLogger("tokenpipe.instance")


class Upkeep:
    """Keeps the files of one process in one directory. Used by one thread at a time."""

    def __init__(
        self, directory: Path, *, owns: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`owns`: this process made the directory, so it makes the directory again too."""
        self._directory = directory
        self._owns = owns
        self._clock = clock
        self._locks: list[RoleLock] = []
        self._again: dict[str, Callable[[], None]] = {}
        self._due = 0.0
        self._touch_due = clock() + TOUCH_S
        self._gone: set[str] = set()  # the files that were missing at the last look
        self._told = ""

    def add_lock(self, lock: RoleLock) -> None:
        """Keep the file of a lock until its release."""
        self._locks = [held for held in (*self._locks, lock) if held.held]

    def add_text(self, name: str, text: str) -> None:
        """Keep a file with this text."""
        self.add(name, lambda: write_whole(self._directory / name, text))

    def add(self, name: str, again: Callable[[], None]) -> None:
        """Keep a file; `again` makes it. It may raise OSError or TokenpipeError."""
        self._again[name] = again

    def remove(self, name: str) -> None:
        """Keep this file no longer."""
        self._again.pop(name, None)

    def look(self, alive: Callable[[], bool]) -> None:
        """Do what is due. `alive`: whether the instance's owner lives.

        The owner of the directory makes its files again at once. The others first wait for one
        look, and look whether the owner lives: an owner that closes removes the files of all.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + LOOK_S
        gone = self._missing()
        if gone and (self._owns or (gone <= self._gone and alive())):
            self._restore(gone)
        self._gone = gone
        if now >= self._touch_due:
            self._touch_due = now + TOUCH_S
            self._touch()

    def restore(self) -> None:
        """Make all missing files now."""
        if gone := self._missing():
            self._restore(gone)

    def _missing(self) -> set[str]:
        gone = {lock.path.name for lock in self._locks if not lock.in_place}
        gone.update(name for name in self._again if _is_gone(self._directory / name))
        return gone

    def _restore(self, gone: set[str]) -> None:
        try:
            if self._owns:
                make_private(self._directory, exist_ok=True)
            for lock in self._locks:
                lock.keep()
            for name in gone & self._again.keys():
                self._again[name]()
        except (OSError, TokenpipeError) as error:
            self._tell(f"{self._directory}: files are missing and cannot be made again: {error}")
        else:
            names = ", ".join(sorted(gone))
            self._tell(f"{self._directory}: another program removed {names}; made again")
            self._told = ""

    def _tell(self, what: str) -> None:
        if what != self._told:
            self._told = what
            _log.warning("%s", what)

    def _touch(self) -> None:
        """Set the times of all files. A failure changes nothing before the next time."""
        for lock in self._locks:
            with suppress(OSError):
                lock.touch()
        for path in (self._directory, *(self._directory / name for name in self._again)):
            with suppress(OSError):
                os.utime(path)


def _is_gone(path: Path) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
