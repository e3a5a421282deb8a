"""Make and check directories that no other user can read."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tokenpipe.errors import ConfigError


def default_base() -> Path:
    """Return the default base directory: in $XDG_RUNTIME_DIR, else one per user in /tmp."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and _is_own(given) and os.access(given, os.W_OK):
        base = Path(given) / "tokenpipe"
    else:
        base = Path(tempfile.gettempdir()) / f"tokenpipe-{os.geteuid()}"
    make_private(base, exist_ok=True)
    return base


def _is_own(path: str) -> bool:
    """Whether it is a directory of this user. Under `sudo -E` it may be another user's."""
    try:
        there = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()


def resolved(base: Path) -> Path:
    """Return the resolved path of `base`, which need not exist. Raises ConfigError."""
    try:
        return Path(os.path.realpath(base))
    except ValueError as error:  # a NUL, or bytes that this file system cannot have
        raise ConfigError(f"runtime directory {str(base)!r}: {error}") from None


def check_base(base: Path) -> Path:
    """Return the resolved path of `base`; make it if it is missing. Raises ConfigError."""
    resolved(base)  # refuses a name that no directory can have
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = base.resolve(strict=True)
        there = base.stat()
    except OSError as error:
        raise ConfigError(f"runtime directory {base}: {error.strerror}") from None
    if there.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not there.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"runtime directory {base} can be written by others (mode {_mode(there)}): "
            "another user could replace the instance"
        )
    return base


def make_private(path: Path, *, exist_ok: bool) -> None:
    """Make a directory with mode 0700, whatever the umask is, or check an existing one."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not exist_ok:
            raise
    except OSError as error:
        raise ConfigError(f"runtime directory {path}: {error.strerror}") from None
    else:
        os.chmod(path, 0o700)  # the umask may have removed the owner's bits
    check_private(path)


def check_private(path: Path) -> None:
    """Raise ConfigError unless `path` is a directory that only this user owns and can enter."""
    try:
        there = os.lstat(path)
    except OSError as error:
        raise ConfigError(f"runtime directory {path}: {error.strerror}") from None
    if stat.S_ISLNK(there.st_mode):
        raise ConfigError(f"runtime directory {path} is a symbolic link")
    if not stat.S_ISDIR(there.st_mode):
        raise ConfigError(f"runtime directory {path} is not a directory")
    if there.st_uid != os.geteuid():
        raise ConfigError(
            f"runtime directory {path} belongs to user {there.st_uid}, not to {os.geteuid()}"
        )
    if there.st_mode & 0o077:
        raise ConfigError(f"runtime directory {path} is open to others (mode {_mode(there)})")


def _mode(there: os.stat_result) -> str:
    return f"{stat.S_IMODE(there.st_mode):04o}"
